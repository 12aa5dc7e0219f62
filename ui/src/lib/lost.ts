/** What installs wipe, by name: for the confirmation. */
export type Installs = readonly { node: string; wipes: readonly { name: string; known: boolean; contents: readonly string[] }[] }[];

const MOST = 20;
/** Letters of one thing on a disk; the plan above has all of them, and the question is to fit a screen. */
const LONGEST = 90;
const cut = (content: string): string => (content.length > LONGEST ? `${content.slice(0, LONGEST)}…` : content);

export function lostData(installs: Installs): string {
  const lost = installs.flatMap((install) =>
    install.wipes.flatMap((disk) =>
      (disk.contents.length || disk.known ? disk.contents : ['what nobody knows']).map((content) => `${cut(content)} on ${disk.name} of ${install.node}`),
    ),
  );
  const more = lost.length > MOST ? `, and ${lost.length - MOST} more` : '';
  return lost.slice(0, MOST).join(', ') + more;
}
