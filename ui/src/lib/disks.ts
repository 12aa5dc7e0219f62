/** The disks of a machine in what it reported, which may be anything. */
import { bytes } from './format.ts';

export interface MachineDisk {
  name: string;
  /** Its device, size, bus and serial number, in words. */
  facts: string;
  known: boolean;
  contents: string[];
}

const LONGEST_TEXT = 128;
const MOST_DISKS = 256;
const MOST_CONTENTS = 128;

const record = (value: unknown): Record<string, unknown> => (value && typeof value === 'object' && !Array.isArray(value) ? (value as Record<string, unknown>) : {});
/** What runs the other way, or is not seen at all, is left out: a label is to read as what it is. */
const text = (value: unknown): string => (typeof value === 'string' ? value.slice(0, LONGEST_TEXT).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, '').trim() : '');
const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);

export function disksOf(discovery: unknown): MachineDisk[] {
  const disks: MachineDisk[] = [];
  for (const entry of list(record(discovery).disks).slice(0, MOST_DISKS).map(record)) {
    const name = text(entry.name);
    if (!name) continue;
    const size = typeof entry.bytes === 'number' ? bytes(entry.bytes) : '';
    const kind = entry.rotational === true ? 'rotates' : '';
    const serial = text(entry.serial) && `serial ${text(entry.serial)}`;
    disks.push({
      name,
      facts: [text(entry.device), size, text(entry.bus), kind, serial].filter(Boolean).join(', '),
      known: Boolean(text(entry.fingerprint)),
      contents: list(entry.contents).slice(0, MOST_CONTENTS).map(record).map(contentWords),
    });
  }
  return disks;
}

function contentWords(content: Record<string, unknown>): string {
  const label = text(content.label) && `“${text(content.label)}”`;
  const size = typeof content.bytes === 'number' ? bytes(content.bytes) : '';
  const words = [text(content.device), text(content.type) || 'something unreadable', label, size].filter(Boolean).join(' ');
  const day = typeof content.mounted_at === 'number' && content.mounted_at > 0 && content.mounted_at < 2 ** 34 ? ` ${new Date(content.mounted_at * 1000).toISOString().slice(0, 10)}` : '';
  const place = text(content.mounted_on) && ` on ${text(content.mounted_on)}`;
  return words + (place || day ? `, last mounted${place}${day}` : '');
}
