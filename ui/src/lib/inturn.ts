// One reading at a time. Of two at once the older answer may come last, and would be shown over the newer one.

/** Each call gives a reading that begins after the call; calls that wait for their turn share one. */
export function inTurn(read: () => Promise<void>): () => Promise<void> {
  let gate: Promise<void> = Promise.resolve();
  let waiting: Promise<void> | undefined;

  async function next(): Promise<void> {
    const before = gate;
    let open!: () => void;
    gate = new Promise((done) => (open = done));
    await before;
    waiting = undefined;
    try {
      await read();
    } finally {
      open();
    }
  }
  return () => (waiting ??= next());
}
