// A form that is sent to the server: busy meanwhile, and what was refused stands at the field it is about.
import { Problem, words } from '../api/client';

export class Form {
  busy = $state(false);
  #refused = $state.raw<Problem | null>(null);
  #fields: string[];

  /** `fields`: what the form has, as the server names them. */
  constructor(fields: string[]) {
    this.#fields = fields;
  }

  /** Do it; says whether it worked. */
  async send(work: () => Promise<unknown>): Promise<boolean> {
    this.busy = true;
    this.#refused = null;
    try {
      await work();
      return true;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      this.#refused = error;
      return false;
    } finally {
      this.busy = false;
    }
  }

  /** Whether somebody else was faster: then what the form shows must be read again. */
  get stale(): boolean {
    return this.#refused?.status === 412;
  }

  /** What is wrong with this field. */
  at(field: string): string {
    return this.#refused && this.#field === field ? words(this.#refused) : '';
  }

  /** What is wrong with no field of ours. */
  get rest(): string {
    return this.#refused && !this.#field ? words(this.#refused) : '';
  }

  get #field(): string | undefined {
    const pointed = this.#refused?.pointer.split('/')[1];
    return this.#fields.find((field) => field === pointed);
  }
}
