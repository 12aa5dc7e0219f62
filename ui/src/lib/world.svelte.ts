// What the page knows of the data centre: read once, then kept true by events. Each noderole is its own source of
// change, so one that moves redraws its own light and nothing else, however many there are.
import { all, api, Away, type Schema } from '../api/client';
import { live, type LiveEvent } from './live.svelte';
import { isState, STATES, worst, type State } from './states';

export type Node = Schema['NodeOut'];
export type Deployment = Schema['DeploymentOut'];
export type Role = Schema['RoleOut'];

/** How many noderoles are in each state. */
export class Counts {
  error = $state(0);
  transition = $state(0);
  todo = $state(0);
  blocked = $state(0);
  proposed = $state(0);
  active = $state(0);

  get worst(): State {
    return worst(STATES.filter((state) => this[state] > 0));
  }

  get total(): number {
    return STATES.reduce((sum, state) => sum + this[state], 0);
  }
}

export class NodeRole {
  readonly id: number;
  readonly node: string;
  readonly role: string;
  readonly deployment: string;
  cohort = $state(0);
  state = $state<State>('proposed');
  error = $state('');

  constructor(from: Schema['NodeRoleOut']) {
    this.id = from.id;
    this.node = from.node;
    this.role = from.role;
    this.deployment = from.deployment;
    if (isState(from.state)) this.state = from.state;
    this.take(from);
  }

  /** All but the state, which is counted. */
  take(from: Schema['NodeRoleOut']): void {
    this.cohort = from.cohort;
    this.error = from.error;
  }
}

export interface Sample {
  settled: number;
  queue: number;
  running: number;
}

const HISTORY = 120;
const SOON = 60;
const PAUSE = 500; // between two readings, however much happens
const FIELDS = 'id,node,role,deployment,state,cohort,error';

function isRenamed(event: LiveEvent): boolean {
  const data = event.data as { changed?: string[] } | null;
  return data?.changed?.includes('name') ?? false;
}

class World {
  ready = $state(false);
  nodes = $state.raw<Node[]>([]);
  deployments = $state.raw<Deployment[]>([]);
  roles = $state.raw<Role[]>([]);
  /** Grows when noderoles come or go; their own states do not touch it. */
  shape = $state(0);
  total = new Counts();
  history = $state.raw<Sample[]>([]);
  noderoles = new Map<number, NodeRole>();
  #byDeployment = new Map<string, Counts>();
  #byNode = new Map<string, Counts>();
  #settled = 0;
  #heardOf = new Set<number>();
  #readAt = -PAUSE;
  #clock: ReturnType<typeof setInterval> | undefined;
  #stale = new Set<'nodes' | 'deployments' | 'noderoles' | 'roles'>();
  #reading: Promise<void> | null = null;
  #quiet: (() => void) | null = null;

  async start(): Promise<void> {
    const { next } = await api.get('/api/v2/events', { query: { since: 'now' } });
    for (const what of ['nodes', 'deployments', 'noderoles', 'roles'] as const) this.#stale.add(what);
    await this.#refresh();
    this.#quiet = live.on((events) => this.#heard(events));
    live.start(next, () => this.reread());
    this.#clock ??= setInterval(() => this.#tick(), 1000);
    this.ready = true;
  }

  stop(): void {
    live.stop();
    this.#quiet?.();
    clearInterval(this.#clock);
    this.#clock = undefined;
    this.ready = false;
  }

  /** Everything anew: after the server was away, whatever happened meanwhile. */
  reread(): void {
    for (const what of ['nodes', 'deployments', 'noderoles', 'roles'] as const) this.outdated(what);
  }

  /** Read something again, soon; many requests for it are one. */
  outdated(what: 'nodes' | 'deployments' | 'noderoles' | 'roles'): void {
    this.#stale.add(what);
    const wait = Math.max(SOON, this.#readAt + PAUSE - performance.now());
    this.#reading ??= new Promise<void>((resolve) => setTimeout(resolve, wait)).then(async () => {
      try {
        await this.#refresh();
        this.#readAt = performance.now();
      } catch (error) {
        if (!(error instanceof Away)) throw error; // read anew when the stream stands again
      } finally {
        this.#reading = null;
        const next = [...this.#stale][0];
        if (next) this.outdated(next);
      }
    });
  }

  /** Wait until what was outdated has been read. */
  async settled(): Promise<void> {
    while (this.#reading) await this.#reading;
  }

  ofDeployment(name: string): Counts {
    return counted(this.#byDeployment, name);
  }

  ofNode(name: string): Counts {
    return counted(this.#byNode, name);
  }

  deployment(name: string): Deployment | undefined {
    return this.deployments.find((one) => one.name === name);
  }

  node(name: string): Node | undefined {
    return this.nodes.find((one) => one.name === name);
  }

  /** The noderoles that are there now; whoever reads this is told when some come or go. */
  list(wanted?: (noderole: NodeRole) => boolean): NodeRole[] {
    void this.shape;
    const found = [...this.noderoles.values()];
    return wanted ? found.filter(wanted) : found;
  }

  async #refresh(): Promise<void> {
    while (this.#stale.size) {
      const stale = new Set(this.#stale);
      this.#stale.clear();
      if (stale.has('noderoles')) this.#heardOf.clear();
      await Promise.all([
        stale.has('nodes') && all('/api/v2/nodes', { sort: 'name' }).then((found) => (this.nodes = found)),
        stale.has('deployments') && all('/api/v2/deployments').then((found) => (this.deployments = found)),
        stale.has('roles') && all('/api/v2/roles').then((found) => (this.roles = found)),
        stale.has('noderoles') && all('/api/v2/node_roles', { fields: FIELDS }).then((found) => this.#replace(found)),
      ]);
    }
  }

  #replace(found: Schema['NodeRoleOut'][]): void {
    const gone = new Set(this.noderoles.keys());
    let changed = false;
    for (const one of found) {
      gone.delete(one.id);
      let known = this.noderoles.get(one.id);
      if (known && (known.node !== one.node || known.deployment !== one.deployment)) {
        // Its node or its deployment was renamed: it counts under the new name.
        this.#count(known, known.state, -1);
        known = undefined;
      }
      if (known) {
        // An event that came while the list was on its way is newer than the list, or will be followed by another.
        if (isState(one.state) && !this.#heardOf.has(one.id)) this.#moved(known, one.state);
        known.take(one);
      } else {
        const noderole = new NodeRole(one);
        this.noderoles.set(one.id, noderole);
        this.#count(noderole, noderole.state, 1);
        changed = true;
      }
    }
    for (const id of gone) {
      const noderole = this.noderoles.get(id);
      this.noderoles.delete(id);
      if (noderole) this.#count(noderole, noderole.state, -1);
      changed = true;
    }
    if (changed) this.shape += 1;
  }

  #count(noderole: NodeRole, state: State, step: number): void {
    this.total[state] += step;
    this.ofDeployment(noderole.deployment)[state] += step;
    this.ofNode(noderole.node)[state] += step;
  }

  #moved(noderole: NodeRole, state: State): void {
    if (noderole.state === state) return;
    this.#count(noderole, noderole.state, -1);
    this.#count(noderole, state, 1);
    noderole.state = state;
    if (state !== 'error') noderole.error = '';
  }

  #heard(events: LiveEvent[]): void {
    for (const event of events) {
      const [subject, what] = event.kind.split('.', 2) as [string, string];
      switch (subject) {
        case 'noderole':
          this.#noderole(event.subject_id ?? 0, what);
          break;
        case 'node':
        case 'install':
          if (what !== 'progress') this.outdated('nodes');
          if (what === 'deleted' || (what === 'updated' && isRenamed(event))) this.outdated('noderoles');
          break;
        case 'snapshot':
        case 'deployment':
        case 'deployment_role':
          this.outdated('deployments');
          if (what === 'committed' || what === 'discarded' || what === 'deleted' || what === 'proposed' || what === 'updated') this.outdated('noderoles');
          break;
        case 'barclamp':
        case 'jig':
          this.outdated('roles');
          break;
      }
    }
  }

  #noderole(id: number, state: string): void {
    this.#heardOf.add(id);
    const known = this.noderoles.get(id);
    if (!known || !isState(state)) {
      this.outdated('noderoles');
      return;
    }
    if (known.state === 'transition' && (state === 'active' || state === 'error')) this.#settled += 1;
    this.#moved(known, state);
    if (state === 'error') void this.#reason(known);
  }

  async #reason(noderole: NodeRole): Promise<void> {
    try {
      const found = await api.get('/api/v2/node_roles/{id}', { path: { id: noderole.id } });
      if (noderole.state === 'error') noderole.take(found);
    } catch {
      this.outdated('noderoles'); // it went away meanwhile
    }
  }

  #tick(): void {
    const sample = { settled: this.#settled, queue: this.total.todo, running: this.total.transition };
    this.#settled = 0;
    this.history = [...this.history, sample].slice(-HISTORY);
  }
}

function counted(where: Map<string, Counts>, name: string): Counts {
  let found = where.get(name);
  if (!found) where.set(name, (found = new Counts()));
  return found;
}

export const world = new World();
