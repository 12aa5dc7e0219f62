// A form that is sent to the server: busy meanwhile, and what was refused stands at the field it is about.
import { type Problem, refusal, words } from '../api/client';

export class Form {
  busy = $state(false);
  #refused = $state.raw<Problem | null>(null);
  #fields: string[];
  #reread: () => Promise<void>;

  /** `fields`: what the form has, as the server names them. `reread`: reads what the form shows. */
  constructor(fields: string[], reread: () => Promise<void> = async () => undefined) {
    this.#fields = fields;
    this.#reread = reread;
  }

  /** Do it, and read again what is there now; says whether it worked. A refusal is told only then: whoever sees it and
   * sends once more sends what they saw. */
  async send(work: () => Promise<unknown>): Promise<boolean> {
    this.busy = true;
    this.#refused = null;
    try {
      const refused = await refusal(work);
      await this.#reread();
      this.#refused = refused;
      return !refused;
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
