// Who is at the keyboard, and what they may do. The server decides; the page only leaves out what would be refused.
import { api, Problem, session, type Schema } from '../api/client';

class Person {
  me = $state.raw<Schema['MeOut'] | null>(null);
  /** Whether it is known yet if somebody is logged in. */
  known = $state(false);

  constructor() {
    session.ended = () => {
      this.me = null;
      session.csrf = '';
    };
  }

  async look(): Promise<void> {
    try {
      this.#is(await api.get('/api/v2/me'));
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (error.status !== 401) throw error;
    }
    this.known = true;
  }

  async enter(name: string, password: string): Promise<void> {
    const opened = await api.post('/api/v2/sessions', { body: { name, password } });
    session.csrf = opened.csrf;
    this.#is(await api.get('/api/v2/me'));
  }

  async leave(): Promise<void> {
    await api.delete('/api/v2/sessions/current');
    session.ended();
  }

  /** Somewhere at least: roles can be of single deployments. */
  get writes(): boolean {
    const roles = this.me ? [this.me.role, ...Object.values(this.me.grants)] : [];
    return roles.some((role) => role === 'admin' || role === 'operator');
  }

  get administers(): boolean {
    return this.me?.role === 'admin';
  }

  #is(me: Schema['MeOut']): void {
    this.me = me;
    session.csrf = me.csrf ?? '';
  }
}

export const person = new Person();
