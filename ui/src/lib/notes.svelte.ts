// Short words to the person: something worked, or the server's own reason why it did not.
import { refusal, words } from '../api/client';

export interface Note {
  id: number;
  kind: 'done' | 'refused';
  text: string;
}

const SECONDS = { done: 6, refused: 60 };

class Notes {
  list = $state<Note[]>([]);
  #next = 1;

  done(text: string): void {
    this.#add('done', text);
  }

  refused(text: string): void {
    this.#add('refused', text);
  }

  drop(id: number): void {
    this.list = this.list.filter((note) => note.id !== id);
  }

  /** Do something and read again what it changed; if the server refuses, show its words. Says whether it worked. Nothing is
   * told before the page shows what is there now. */
  async attempt(work: () => Promise<unknown>, done?: string, reread?: () => Promise<void>): Promise<boolean> {
    const refused = await refusal(work);
    await reread?.();
    if (refused) this.refused(words(refused));
    else if (done) this.done(done);
    return !refused;
  }

  #add(kind: Note['kind'], text: string): void {
    const id = this.#next++;
    this.list = [...this.list.filter((note) => note.text !== text), { id, kind, text }].slice(-4);
    setTimeout(() => this.drop(id), SECONDS[kind] * 1000);
  }
}

export const notes = new Notes();
