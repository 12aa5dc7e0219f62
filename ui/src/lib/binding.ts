// Binding roles to nodes in a deployment's open proposal: all of what was asked, or nothing and the server's reason.
import { api, Problem } from '../api/client';
import type { Load } from './drag.svelte';
import { count } from './format';
import { notes } from './notes.svelte';
import { targetsOf, trials, type Trial } from './targets';
import { world } from './world.svelte';

/** Why the server would refuse what is dragged, for each target by its name; empty: it would not. */
export async function verdicts(deployment: string, load: Load, targets: string[]): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  for (const trial of trials(load, targets)) {
    for (const [target, refused] of await tried(deployment, trial)) found.set(target, refused);
  }
  return found;
}

async function tried(deployment: string, trial: Trial): Promise<[string, string][]> {
  try {
    const answer = await api.post('/api/v2/deployments/{deployment}/bind', { path: { deployment }, query: { dry_run: true }, body: trial });
    return answer.targets.map((one) => [one.target, one.refused?.detail ?? '']);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    const { message } = error;
    return targetsOf(trial).map((target) => [target, message]); // it concerns all of them: there is no proposal, say
  }
}

function bind(deployment: string, nodes: string[], role: string): Promise<unknown> {
  const bindings = nodes.map((node) => ({ node, role }));
  return api.post('/api/v2/deployments/{deployment}/bind', { path: { deployment }, body: { bindings } });
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
