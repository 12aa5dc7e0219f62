// The stream of events: one connection for the whole page, which comes back by itself and says when it is away.
// Events are handed on in bundles, one a frame, so a busy system costs no more than a calm one.
import { session } from '../api/client';

export interface LiveEvent {
  cursor: string;
  kind: string;
  subject_id: number | null;
  node_id: number | null;
  deployment_id: number | null;
  data: unknown;
  actor: string;
  at: string;
}

type Listener = (events: LiveEvent[]) => void;

const SILENCE = 40_000; // the server says something every 15 seconds
const WAITS = [500, 1000, 2000, 4000, 8000];

class Live {
  /** off: nobody is logged in; away: it is tried again by itself. */
  status = $state<'off' | 'connecting' | 'live' | 'away'>('off');
  #listeners = new Set<Listener>();
  #cursor = '';
  #waiting: LiveEvent[] = [];
  #planned = false;
  #stop: AbortController | null = null;

  /** Listen until the returned function is called. */
  on(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Start from a cursor. `caughtUp` is called when the stream stands again after it was away. */
  start(cursor: string, caughtUp: () => void): void {
    this.stop();
    this.#cursor = cursor;
    this.#stop = new AbortController();
    void this.#keep(this.#stop.signal, caughtUp);
  }

  stop(): void {
    this.#stop?.abort();
    this.#stop = null;
    this.status = 'off';
  }

  async #keep(signal: AbortSignal, caughtUp: () => void): Promise<void> {
    let failures = 0;
    let first = true;
    while (!signal.aborted) {
      this.status = first || failures < 2 ? 'connecting' : 'away';
      await this.#read(signal, () => {
        failures = 0;
        this.status = 'live';
        if (!first) caughtUp();
        first = false;
      });
      if (signal.aborted) return;
      failures += 1;
      this.status = 'away';
      const wait = WAITS[Math.min(failures, WAITS.length) - 1] ?? 8000;
      await new Promise((resolve) => setTimeout(resolve, wait * (0.75 + Math.random() / 2)));
    }
  }

  /** One connection, until it ends. */
  async #read(signal: AbortSignal, opened: () => void): Promise<void> {
    const own = new AbortController();
    const end = (): void => own.abort();
    signal.addEventListener('abort', end, { once: true });
    let alarm = setTimeout(end, SILENCE);
    try {
      const answer = await fetch(`/api/v2/events?since=${encodeURIComponent(this.#cursor)}`, {
        headers: { Accept: 'text/event-stream' },
        signal: own.signal,
      });
      if (answer.status === 401) session.ended();
      if (answer.status === 410) this.#cursor = 'now'; // no longer kept; what was missed is read anew when it stands
      if (!answer.ok || !answer.body) return;
      opened();
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = '';
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(alarm);
        alarm = setTimeout(end, SILENCE);
        const blocks = (rest + value).split('\n\n');
        rest = blocks.pop() ?? '';
        for (const block of blocks) this.#block(block);
      }
    } catch {
      // The connection broke, which is what the caller waits for.
    } finally {
      clearTimeout(alarm);
      signal.removeEventListener('abort', end);
    }
  }

  #block(block: string): void {
    for (const line of block.split('\n')) {
      if (line.startsWith('id: ')) this.#cursor = line.slice(4);
      else if (line.startsWith('data: ')) this.#waiting.push(JSON.parse(line.slice(6)) as LiveEvent);
    }
    if (this.#waiting.length && !this.#planned) {
      this.#planned = true;
      // A hidden page gets no frames, but must not pile up what it hears either.
      if (document.hidden) setTimeout(() => this.#hand(), 250);
      else requestAnimationFrame(() => this.#hand());
    }
  }

  #hand(): void {
    this.#planned = false;
    const events = this.#waiting;
    this.#waiting = [];
    for (const listener of this.#listeners) listener(events);
  }
}

export const live = new Live();
