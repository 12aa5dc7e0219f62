// Times and numbers as people read them.

const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });

export function time(at: string | null | undefined): string {
  if (!at) return '';
  const date = new Date(at);
  return Date.now() - date.getTime() < 20 * 3600_000 ? clock.format(date) : full.format(date);
}

export function span(from: string | null | undefined, to: string | null | undefined): string {
  if (!from) return '';
  const seconds = ((to ? new Date(to).getTime() : Date.now()) - new Date(from).getTime()) / 1000;
  if (seconds < 10) return `${Math.max(0, seconds).toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

export function count(number: number, one: string, many = `${one}s`): string {
  return `${number.toLocaleString()} ${number === 1 ? one : many}`;
}

/** A value of unknown shape in one line. */
export function brief(value: unknown): string {
  if (value === null || value === undefined) return '';
  return typeof value === 'string' ? value : JSON.stringify(value);
}

/** In powers of ten, as disks are sold. */
export function bytes(number: number): string {
  for (const [unit, factor] of [['TB', 1e12], ['GB', 1e9], ['MB', 1e6]] as const) if (number >= factor) return `${(number / factor).toFixed(1)} ${unit}`;
  return `${number} bytes`;
}
