// Which page is where. The graph brings its own library, so it is only loaded by whoever opens it.
import type { Component } from 'svelte';
import Annealer from './Annealer.svelte';
import Barclamps from './Barclamps.svelte';
import Deployment from './Deployment.svelte';
import Deployments from './Deployments.svelte';
import Events from './Events.svelte';
import Hooks from './Hooks.svelte';
import Network from './Network.svelte';
import Networks from './Networks.svelte';
import Node from './Node.svelte';
import NodeRole from './NodeRole.svelte';
import Nodes from './Nodes.svelte';
import Overview from './Overview.svelte';
import People from './People.svelte';

type Page = Component<Record<string, string>>;

interface Route {
  path: string;
  load: () => Page | Promise<Page>;
}

const plain = (page: unknown) => (): Page => page as Page;

export const ROUTES: Route[] = [
  { path: '/', load: plain(Overview) },
  { path: '/deployments', load: plain(Deployments) },
  { path: '/deployments/:name', load: plain(Deployment) },
  { path: '/nodes', load: plain(Nodes) },
  { path: '/nodes/:name', load: plain(Node) },
  { path: '/networks', load: plain(Networks) },
  { path: '/networks/:name', load: plain(Network) },
  { path: '/noderoles/:id', load: plain(NodeRole) },
  { path: '/graph', load: async () => (await import('./Graph.svelte')).default as unknown as Page },
  { path: '/annealer', load: plain(Annealer) },
  { path: '/barclamps', load: plain(Barclamps) },
  { path: '/hooks', load: plain(Hooks) },
  { path: '/events', load: plain(Events) },
  { path: '/people', load: plain(People) },
];
