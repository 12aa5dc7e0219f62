// What a drag could end on, put into as few requests as the server takes: nearly always one.

/** A body of a dry run that is answered for each node, or for each role, by itself. */
export interface Trial {
  nodes: string[];
  roles: string[];
  each: 'node' | 'role';
}

/** The server's limits of one request: targets, and bindings of all of them together. */
const MOST_TARGETS = 1000;
const MOST_BINDINGS = 10_000;

/** The trials that ask about all targets: of dragged nodes the targets are roles, of a dragged role they are nodes. */
export function trials(load: { kind: 'node' | 'role'; names: string[] }, targets: string[]): Trial[] {
  const most = Math.max(1, Math.min(MOST_TARGETS, Math.floor(MOST_BINDINGS / Math.max(1, load.names.length))));
  const found: Trial[] = [];
  for (let first = 0; first < targets.length; first += most) {
    const portion = targets.slice(first, first + most);
    found.push(load.kind === 'node' ? { nodes: load.names, roles: portion, each: 'role' } : { nodes: portion, roles: load.names, each: 'node' });
  }
  return found;
}

export function targetsOf(trial: Trial): string[] {
  return trial.each === 'node' ? trial.nodes : trial.roles;
}
