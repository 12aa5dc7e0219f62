// Binding roles to nodes in a deployment's open proposal: all of what was asked, or nothing and the server's reason.
import { api, Problem } from '../api/client';
import { count } from './format';
import { notes } from './notes.svelte';
import { world } from './world.svelte';

/** Why the server would refuse; empty: it would not. */
export async function verdict(deployment: string, nodes: string[], role: string): Promise<string> {
  for (const node of nodes) {
    try {
      await api.post('/api/v2/node_roles', { query: { dry_run: true }, body: { node, role, deployment } });
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      return error.message;
    }
  }
  return '';
}

/** Open a proposal if there is none. */
export async function proposed(deployment: string): Promise<void> {
  if (world.deployment(deployment)?.proposed_id) return;
  await api.post('/api/v2/deployments/{deployment}/propose', { path: { deployment } });
  notes.done('A proposal was opened. Nothing changes before you commit it.');
}

export async function bindAll(deployment: string, nodes: string[], role: string): Promise<boolean> {
  const refused = nodes.length > 1 ? await verdict(deployment, nodes, role) : '';
  if (refused) {
    notes.refused(refused);
    return false;
  }
  const done = await notes.attempt(async () => {
    await proposed(deployment);
    for (const node of nodes) await api.post('/api/v2/node_roles', { body: { node, role, deployment } });
  });
  if (done) notes.done(`${role} bound to ${nodes.length === 1 ? nodes[0] : count(nodes.length, 'node')}.`);
  world.outdated('noderoles');
  world.outdated('deployments');
  return done;
}
