// IP addresses in their order, and what lies between them. The server checks them; here they are only sorted.

/** Its number, behind its family: all of IPv4 comes before all of IPv6. */
export function order(address: string): bigint {
  return address.includes(':') ? (1n << 128n) + six(address) : four(address);
}

function four(address: string): bigint {
  return address.split('.').reduce((sum, part) => (sum << 8n) + BigInt(part), 0n);
}

function six(address: string): bigint {
  const [head = '', tail] = address.split('::');
  const before = parts(head);
  const after = tail === undefined ? [] : parts(tail);
  const zeros = Array.from({ length: 8 - before.length - after.length }, () => 0n);
  return [...before, ...zeros, ...after].reduce((sum, part) => (sum << 16n) + part, 0n);
}

function parts(text: string): bigint[] {
  if (!text) return [];
  return text.split(':').flatMap((part) => {
    if (!part.includes('.')) return [BigInt(`0x${part}`)];
    const last = four(part); // the last 32 bits may be written as IPv4
    return [last >> 16n, last & 0xffffn];
  });
}

/** How many, short: nobody counts the addresses of an IPv6 range. */
export function amount(number: number): string {
  if (number < 1_000_000) return number.toLocaleString();
  const power = String(Math.round(Math.log2(number)));
  return `about 2${[...power].map((digit) => '⁰¹²³⁴⁵⁶⁷⁸⁹'[Number(digit)]).join('')}`;
}

export interface Held {
  address: string;
  node: string;
}

export interface Gap {
  first: string;
  last: string;
  size: number;
}

export type Line<H extends Held> = { kind: 'held'; held: H } | { kind: 'gap'; gap: Gap };

/** Who holds what, and what is free, in the order of the addresses. */
export function lines<H extends Held>(held: H[], gaps: Gap[]): Line<H>[] {
  const found: [bigint, Line<H>][] = [
    ...held.map((one): [bigint, Line<H>] => [order(one.address), { kind: 'held', held: one }]),
    ...gaps.map((gap): [bigint, Line<H>] => [order(gap.first), { kind: 'gap', gap }]),
  ];
  return found.sort(([one], [other]) => (one < other ? -1 : one > other ? 1 : 0)).map(([, line]) => line);
}
