// The states of a noderole, as they are shown: worst first, each with a word and a shape, so colour is never alone.
export const STATES = ['error', 'transition', 'todo', 'blocked', 'proposed', 'active'] as const;
export type State = (typeof STATES)[number];

export const MEANS: Record<State, string> = {
  error: 'the last run failed',
  transition: 'its work is being done now',
  todo: 'ready, waits for its turn',
  blocked: 'waits for something it stands on',
  proposed: 'not committed yet',
  active: 'done, with the inputs it has now',
};

export function isState(word: string): word is State {
  return (STATES as readonly string[]).includes(word);
}

/** The worst of some states; what has none is at rest. */
export function worst(states: Iterable<State>): State {
  let found = STATES.length - 1;
  for (const state of states) found = Math.min(found, STATES.indexOf(state));
  return STATES[found] ?? 'active';
}
