// Dark or light: what the system says, until a person says otherwise in this browser.

export type Choice = 'system' | 'light' | 'dark';
const KEY = 'rackwright-theme';
const system = matchMedia('(prefers-color-scheme: dark)');

class Theme {
  choice = $state<Choice>((localStorage.getItem(KEY) as Choice | null) ?? 'system');

  constructor() {
    system.addEventListener('change', () => this.#apply());
    this.#apply();
  }

  choose(choice: Choice): void {
    this.choice = choice;
    if (choice === 'system') localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, choice);
    this.#apply();
  }

  #apply(): void {
    const dark = this.choice === 'dark' || (this.choice === 'system' && system.matches);
    document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  }
}

export const theme = new Theme();
