// Dragging by mouse or pen: nodes onto a role, or a role onto a node. What would refuse is asked of the server as the
// drag starts, for all targets on the page at once; again only for targets that come onto it meanwhile. Everything it does can be done by keyboard too: select nodes, then press a role's button.
import type { Action } from 'svelte/action';

export interface Load {
  kind: 'node' | 'role';
  names: string[];
}

/** A place to drop: a role takes nodes, a node takes a role. */
export interface Target {
  kind: 'node' | 'role';
  name: string;
}

/** Says for each target, by its name, why it would refuse what is dragged; an empty text: it would take it. */
type Judge = (load: Load, targets: string[]) => Promise<Map<string, string>>;
type Drop = (load: Load, target: Target) => void;

const THRESHOLD = 5;

class Drag {
  load = $state.raw<Load | null>(null);
  over = $state.raw<Target | null>(null);
  x = $state(0);
  y = $state(0);
  /** Why a target would refuse, by its key; an empty text: it would take it. */
  verdicts = $state.raw<Record<string, string>>({});
  #judge: Judge = async () => new Map();
  #drop: Drop = () => undefined;
  /** Names of the targets that were asked about in this drag. */
  #asked = new Set<string>();

  /** The page that knows what a drop means here. */
  serve(judge: Judge, drop: Drop): () => void {
    this.#judge = judge;
    this.#drop = drop;
    return () => {
      this.cancel();
      this.#judge = async () => new Map();
      this.#drop = () => undefined;
    };
  }

  /** refuses: the server said no; takes: it said yes; open: not known yet; none: nothing is dragged here. */
  mark(target: Target): 'refuses' | 'takes' | 'open' | 'none' {
    if (!this.load || this.load.kind === target.kind) return 'none';
    const verdict = this.verdicts[key(target)];
    if (verdict === undefined) return 'open';
    return verdict ? 'refuses' : 'takes';
  }

  start(load: Load): void {
    this.load = load;
    this.verdicts = {};
    this.#asked.clear();
    document.documentElement.classList.add('dragging');
    void this.#ask();
  }

  move(x: number, y: number): void {
    this.x = x;
    this.y = y;
    const element = document.elementFromPoint(x, y)?.closest<HTMLElement>('[data-drop], [data-drop-cell]');
    const target = element ? this.#targetAt(element) : null;
    this.over = target && target.kind !== this.load?.kind ? target : null;
    if (this.over && !this.#asked.has(this.over.name)) void this.#ask();
  }

  finish(): void {
    const { load, over } = this;
    this.cancel();
    if (load && over) this.#drop(load, over);
  }

  cancel(): void {
    this.load = null;
    this.over = null;
    document.documentElement.classList.remove('dragging');
  }

  /** A cell is both: for a dragged node it is its role, for a dragged role its node. */
  #targetAt(element: HTMLElement): Target | null {
    if (element.dataset.drop) return targetOf(element);
    const [node, role] = (element.dataset.dropCell ?? '').split('\n');
    return this.load?.kind === 'node' ? { kind: 'role', name: role ?? '' } : { kind: 'node', name: node ?? '' };
  }

  /** Ask at once about all targets that are on the page and were not asked about yet. */
  async #ask(): Promise<void> {
    const load = this.load;
    if (!load) return;
    const targets = [...document.querySelectorAll<HTMLElement>('[data-drop]')].map(targetOf);
    const fresh = new Map<string, Target>();
    for (const target of [...targets, this.over]) {
      if (target && target.kind !== load.kind && !this.#asked.has(target.name)) fresh.set(target.name, target);
    }
    if (!fresh.size) return;
    for (const name of fresh.keys()) this.#asked.add(name);
    const said = await this.#judge(load, [...fresh.keys()]);
    if (this.load !== load) return;
    const found: Record<string, string> = { ...this.verdicts };
    for (const [name, target] of fresh) {
      const verdict = said.get(name);
      if (verdict !== undefined) found[key(target)] = verdict;
    }
    this.verdicts = found;
  }
}

export function key(target: Target): string {
  return `${target.kind} ${target.name}`;
}

function targetOf(element: HTMLElement): Target | null {
  const [kind, name] = (element.dataset.drop ?? '').split('\n');
  return (kind === 'node' || kind === 'role') && name ? { kind, name } : null;
}

export const drag = new Drag();

/** Make an element one that can be dragged; `load` says what it carries when the drag starts. */
export const draggable: Action<HTMLElement, (() => Load) | null> = (element, load) => {
  let wanted = load;
  let from: { x: number; y: number } | null = null;

  function down(event: PointerEvent): void {
    if (!wanted || event.button !== 0 || event.pointerType === 'touch') return;
    if ((event.target as Element).closest('input, select, textarea')) return;
    from = { x: event.clientX, y: event.clientY };
    addEventListener('pointermove', move);
    addEventListener('pointerup', up, { once: true });
    addEventListener('keydown', escape);
  }
  function move(event: PointerEvent): void {
    if (!from || !wanted) return;
    if (!drag.load) {
      if (Math.hypot(event.clientX - from.x, event.clientY - from.y) < THRESHOLD) return;
      drag.start(wanted());
    }
    event.preventDefault();
    drag.move(event.clientX, event.clientY);
  }
  function up(): void {
    if (drag.load) {
      // The click that follows belongs to the drop, not to what lies under it.
      addEventListener('click', swallow, { capture: true, once: true });
      setTimeout(() => removeEventListener('click', swallow, { capture: true }), 0);
      drag.finish();
    }
    end();
  }
  function escape(event: KeyboardEvent): void {
    if (event.key !== 'Escape') return;
    drag.cancel();
    end();
  }
  function end(): void {
    from = null;
    removeEventListener('pointermove', move);
    removeEventListener('pointerup', up);
    removeEventListener('keydown', escape);
  }
  function swallow(event: Event): void {
    event.stopPropagation();
    event.preventDefault();
  }
  const still = (event: Event): void => event.preventDefault();

  element.addEventListener('pointerdown', down);
  element.addEventListener('dragstart', still);
  return {
    update: (next) => (wanted = next),
    destroy: () => {
      end();
      element.removeEventListener('pointerdown', down);
      element.removeEventListener('dragstart', still);
    },
  };
};
