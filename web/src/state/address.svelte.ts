// The view and its filters, which are the part of the URL after `#`: `#backends?pool=web&find=b1`.

class Address {
  #hash = $state(location.hash);
  #parts = $derived(split(this.#hash));

  constructor() {
    addEventListener("hashchange", () => (this.#hash = location.hash));
  }

  get view(): string {
    return this.#parts.view || "overview";
  }

  get(name: string): string {
    return this.#parts.query.get(name) ?? "";
  }

  /** Changes a filter of this view, without a step in the browser's history. */
  set(name: string, value: string): void {
    const query = new URLSearchParams(this.#parts.query);
    if (value) query.set(name, value);
    else query.delete(name);
    const text = query.toString();
    history.replaceState(null, "", `#${this.view}${text ? `?${text}` : ""}`);
    this.#hash = location.hash;
  }
}

function split(hash: string): { view: string; query: URLSearchParams } {
  const [view, query] = hash.replace(/^#/, "").split("?", 2);
  return { view: view ?? "", query: new URLSearchParams(query ?? "") };
}

export const address = new Address();
