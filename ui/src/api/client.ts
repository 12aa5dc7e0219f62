// The way to the server. Paths, parameters and answers are checked against types made from openapi.json.
import type { components, paths } from './schema';

export type Schema = components['schemas'];
type Method = 'get' | 'post' | 'put' | 'patch' | 'delete';
type PathsOf<M extends Method> = { [P in keyof paths]: paths[P] extends Record<M, object> ? P : never }[keyof paths];
type Operation<P extends keyof paths, M extends Method> = paths[P] extends Record<M, infer O> ? O : never;
type Content<R> = R extends { content: { 'application/json': infer B } } ? B : undefined;
type Answer<O> = O extends { responses: infer R }
  ? R extends { 200: infer A } ? Content<A> : R extends { 201: infer A } ? Content<A> : undefined
  : never;
/** Schemas of patches carry their definitions along, which nobody sends. */
type Plain<B> = B extends readonly unknown[] ? B : B extends object ? Omit<B, '$defs'> : B;
type Body<O> = O extends { requestBody?: { content: infer C } } ? Plain<C[keyof C]> : never;
type Query<O> = O extends { parameters: { query?: infer Q } } ? Q : never;

export interface Asked<O> {
  path?: Record<string, string | number>;
  query?: Query<O>;
  body?: Body<O>;
  /** The version that the person saw: somebody else's change in between is refused, not overwritten. */
  etag?: string;
}

/** What the server refused, in its own words. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly type: string,
    message: string,
    readonly pointer = '',
  ) {
    super(message);
  }
}

/** A refusal as the page tells it. What is stale the page reads again by itself, so it does not ask the person to. */
export function words(problem: Problem): string {
  if (problem.status !== 412) return problem.message;
  const [first] = problem.message.split('. ', 1);
  return `${first}. Nothing was done. You see it now as it is: look, then do it again.`;
}

/** Do something; gives why the server refused, if it did. */
export async function refusal(work: () => Promise<unknown>): Promise<Problem | null> {
  try {
    await work();
    return null;
  } catch (error) {
    if (error instanceof Problem) return error;
    throw error;
  }
}

/** Nobody answered: the network or the server is away. */
export class Away extends Problem {
  constructor() {
    super(0, 'away', 'The server does not answer. It is tried again by itself; repeat what you wanted then.');
  }
}

export const session = { csrf: '', ended: (): void => undefined };

async function call<P extends keyof paths, M extends Method>(
  method: M,
  path: P,
  asked: Asked<Operation<P, M>> = {},
): Promise<Answer<Operation<P, M>>> {
  const headers: Record<string, string> = { Accept: 'application/json' };
  if (session.csrf && method !== 'get') headers['X-CSRF-Token'] = session.csrf;
  if (asked.body !== undefined) {
    headers['Content-Type'] = method === 'patch' ? 'application/merge-patch+json' : 'application/json';
  }
  if (asked.etag) headers['If-Match'] = `"${asked.etag}"`;
  const request: RequestInit = { method: method.toUpperCase(), headers, credentials: 'same-origin' };
  if (asked.body !== undefined) request.body = JSON.stringify(asked.body);
  const answer = await fetch(address(path, asked), request).catch(() => {
    throw new Away();
  });
  if (!answer.ok) throw await problem(answer);
  const text = await answer.text();
  return (text ? JSON.parse(text) : undefined) as Answer<Operation<P, M>>;
}

function address(path: string, asked: { path?: Record<string, string | number>; query?: unknown }): string {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(asked.path?.[name] ?? '')));
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries((asked.query ?? {}) as Record<string, unknown>)) {
    for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined && one !== null) query.append(name, String(one));
  }
  const text = query.toString();
  return text ? `${filled}?${text}` : filled;
}

async function problem(answer: Response): Promise<Problem> {
  const said = (await answer.json().catch(() => ({}))) as Record<string, unknown>;
  const faults = Array.isArray(said.errors) ? (said.errors as { pointer?: string; detail?: string }[]) : [];
  const first = faults[0];
  const detail = typeof said.detail === 'string' && said.detail ? said.detail : '';
  const text = detail || (first?.detail ?? `The server answered ${answer.status} without saying why.`);
  const type = String(said.type ?? '').split(':').at(-1) ?? '';
  if (answer.status === 401 && type !== 'wrong-login') session.ended();
  return new Problem(answer.status, type, text, String(said.pointer ?? first?.pointer ?? ''));
}

export const api = {
  get: <P extends PathsOf<'get'>>(path: P, asked?: Asked<Operation<P, 'get'>>) => call('get', path, asked),
  post: <P extends PathsOf<'post'>>(path: P, asked?: Asked<Operation<P, 'post'>>) => call('post', path, asked),
  put: <P extends PathsOf<'put'>>(path: P, asked?: Asked<Operation<P, 'put'>>) => call('put', path, asked),
  patch: <P extends PathsOf<'patch'>>(path: P, asked?: Asked<Operation<P, 'patch'>>) => call('patch', path, asked),
  delete: <P extends PathsOf<'delete'>>(path: P, asked?: Asked<Operation<P, 'delete'>>) => call('delete', path, asked),
};

interface PageOf<T> {
  items: T[];
  next?: string | null;
}

/** All of a list, page after page. */
export async function all<P extends PathsOf<'get'>, T = Answer<Operation<P, 'get'>> extends PageOf<infer I> ? I : never>(
  path: P,
  query: Record<string, unknown> = {},
  place: Record<string, string | number> = {},
): Promise<T[]> {
  const found: T[] = [];
  let cursor: string | null | undefined;
  do {
    const asked = { path: place, query: { limit: 1000, ...query, ...(cursor ? { cursor } : {}) } };
    const page = (await call('get', path, asked as never)) as unknown as PageOf<T>;
    for (const item of page.items) found.push(item);
    cursor = page.next;
  } while (cursor);
  return found;
}
