// The links of a machine as it reported them, each with who is at the other end of its cable. Machines may report anything: what
// does not look like a link is left to those who show the whole report.

export interface Link {
  name: string;
  mac: string;
  /** Whether there is a cable with somebody at its other end; null: it does not say. */
  up: boolean | null;
  /** Megabits a second; 0: it does not say. */
  speed: number;
  neighbour: Neighbour | null;
}
export interface Neighbour {
  /** Its name, or else what else it goes by. */
  who: string;
  port: string;
  /** What else it said, in words. */
  more: string;
}
type Facts = Record<string, unknown>;

const facts = (value: unknown): Facts => (value && typeof value === 'object' && !Array.isArray(value) ? (value as Facts) : {});
const text = (value: unknown): string => (typeof value === 'string' ? value : '');

function neighbour(value: unknown): Neighbour | null {
  const said = facts(value);
  const [chassis, port] = [text(said.chassis), text(said.port)];
  if (!chassis || !port) return null;
  const more = [
    text(said.port_description),
    typeof said.vlan === 'number' ? `VLAN ${said.vlan}` : '',
    text(said.management) && `managed at ${text(said.management)}`,
    text(said.name) && `chassis ${chassis}`,
  ];
  return { who: text(said.name) || chassis, port, more: more.filter(Boolean).join(', ') };
}

/** By name, also those of which only a neighbour is known. */
export function links(discovery: unknown): Link[] {
  const heard = facts(facts(discovery).lldp);
  const reported = facts(discovery).links;
  const found = new Map<string, Link>();
  for (const one of Array.isArray(reported) ? reported.map(facts) : []) {
    const name = text(one.name) || text(one.mac);
    if (!name) continue;
    const speed = typeof one.speed === 'number' && one.speed > 0 ? one.speed : 0;
    found.set(name, { name, mac: text(one.mac), up: typeof one.up === 'boolean' ? one.up : null, speed, neighbour: neighbour(heard[name]) });
  }
  for (const [name, said] of Object.entries(heard)) {
    const known = neighbour(said);
    if (known && !found.has(name)) found.set(name, { name, mac: '', up: null, speed: 0, neighbour: known });
  }
  return [...found.values()].sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }));
}
