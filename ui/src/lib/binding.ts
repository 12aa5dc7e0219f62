// Binding roles to nodes in a deployment's open proposal: all of what was asked, or nothing and the server's reason.
import { api, refusal } from '../api/client';
import { count } from './format';
import { notes } from './notes.svelte';
import { world } from './world.svelte';

/** Why the server would refuse; empty: it would not. */
export async function verdict(deployment: string, nodes: string[], role: string): Promise<string> {
  const refused = await refusal(() => bind(deployment, nodes, role, true));
  return refused?.message ?? '';
}

function bind(deployment: string, nodes: string[], role: string, dry = false): Promise<unknown> {
  const bindings = nodes.map((node) => ({ node, role }));
  return api.post('/api/v2/deployments/{deployment}/bind', { path: { deployment }, query: { dry_run: dry }, body: { bindings } });
}

/** Open a proposal if there is none. */
export async function proposed(deployment: string): Promise<void> {
  if (world.deployment(deployment)?.proposed_id) return;
  await api.post('/api/v2/deployments/{deployment}/propose', { path: { deployment } });
  notes.done('A proposal was opened. Nothing changes before you commit it.');
}

export async function bindAll(deployment: string, nodes: string[], role: string): Promise<boolean> {
  const done = await notes.attempt(async () => {
    await proposed(deployment);
    await bind(deployment, nodes, role);
  });
  if (done) notes.done(`${role} bound to ${nodes.length === 1 ? nodes[0] : count(nodes.length, 'node')}.`);
  world.outdated('noderoles');
  world.outdated('deployments');
  return done;
}
