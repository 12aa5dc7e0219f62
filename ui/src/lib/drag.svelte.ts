// Dragging by mouse or pen: nodes onto a role, or a role onto a node. What would refuse is asked of the server while
// the drag goes on. Everything it does can be done by keyboard too: select nodes, then press a role's button.
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

type Judge = (load: Load, target: Target) => Promise<string>;
type Drop = (load: Load, target: Target) => void;

const THRESHOLD = 5;
const AT_ONCE = 4;

class Drag {
  load = $state.raw<Load | null>(null);
  over = $state.raw<Target | null>(null);
  x = $state(0);
  y = $state(0);
  /** Why a target would refuse, by its key; an empty text: it would take it. */
  verdicts = $state<Record<string, string>>({});
  #judge: Judge = async () => '';
  #drop: Drop = () => undefined;
  #asked = new Set<string>();
  #queue: Target[] = [];
  #busy = 0;

  /** The page that knows what a drop means here. */
  serve(judge: Judge, drop: Drop): () => void {
    this.#judge = judge;
    this.#drop = drop;
    return () => {
      this.cancel();
      this.#judge = async () => '';
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
    for (const element of document.querySelectorAll<HTMLElement>('[data-drop]')) this.#ask(targetOf(element));
  }

  move(x: number, y: number): void {
    this.x = x;
    this.y = y;
    const element = document.elementFromPoint(x, y)?.closest<HTMLElement>('[data-drop], [data-drop-cell]');
    const target = element ? this.#targetAt(element) : null;
    this.over = target && target.kind !== this.load?.kind ? target : null;
    if (this.over) this.#ask(this.over);
  }

  finish(): void {
    const { load, over } = this;
    this.cancel();
    if (load && over) this.#drop(load, over);
  }

  cancel(): void {
    this.load = null;
    this.over = null;
    this.#queue = [];
    document.documentElement.classList.remove('dragging');
  }

  /** A cell is both: for a dragged node it is its role, for a dragged role its node. */
  #targetAt(element: HTMLElement): Target | null {
    if (element.dataset.drop) return targetOf(element);
    const [node, role] = (element.dataset.dropCell ?? '').split('\n');
    return this.load?.kind === 'node' ? { kind: 'role', name: role ?? '' } : { kind: 'node', name: node ?? '' };
  }

  #ask(target: Target | null): void {
    if (!target || !this.load || target.kind === this.load.kind || this.#asked.has(key(target))) return;
    this.#asked.add(key(target));
    this.#queue.push(target);
    while (this.#busy < AT_ONCE && this.#queue.length) void this.#next();
  }

  async #next(): Promise<void> {
    const target = this.#queue.shift();
    const load = this.load;
    if (!target || !load) return;
    this.#busy += 1;
    try {
      const verdict = await this.#judge(load, target);
      if (this.load === load) this.verdicts[key(target)] = verdict;
    } finally {
      this.#busy -= 1;
      if (this.#queue.length) void this.#next();
    }
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
