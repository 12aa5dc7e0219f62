// What only one page needs: read when it opens, and again, soon, when something about it happens.
import { Away } from '../api/client';
import { inTurn } from './inturn';
import { live } from './live.svelte';

const PAUSE = 300;

/** Read now and after each event of these subjects (`noderole`, `run`, ...) that `about` lets through. Gives the
 * reading itself, for who has just changed something. */
export function fresh(
  read: () => Promise<void>,
  subjects: string[],
  about: (event: { subject_id: number | null; node_id: number | null; deployment_id: number | null; kind: string }) => boolean = () => true,
): () => Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let was = live.status;

  const quietly = inTurn(async () => {
    try {
      await read();
    } catch (error) {
      if (!(error instanceof Away)) throw error; // read anew when the stream stands again
    }
  });
  function soon(): void {
    timer ??= setTimeout(() => {
      timer = undefined;
      void quietly();
    }, PAUSE);
  }

  void quietly();
  $effect(() => {
    const quiet = live.on((events) => {
      if (events.some((event) => subjects.includes(event.kind.split('.', 1)[0] ?? '') && about(event))) soon();
    });
    return () => {
      quiet();
      clearTimeout(timer);
    };
  });
  $effect(() => {
    if (live.status === 'live' && was !== 'live') soon();
    was = live.status;
  });
  return quietly;
}
