// Who uses the page: without a token a reader, if the API permits that.

import { get, hasToken, setToken } from "../api/client";
import type { Caller, Role } from "../api/types";

const RANK: Record<Role, number> = { read: 0, operate: 1, admin: 2 };

class CallerState {
  /** `null` while the API has not identified the caller. */
  identity = $state.raw<Caller | null>(null);

  may(role: Role): boolean {
    return this.identity !== null && RANK[this.identity.role] >= RANK[role];
  }

  get isLoggedIn(): boolean {
    return this.identity !== null && hasToken();
  }

  /** Asks the API who the caller is. */
  async ask(): Promise<void> {
    this.identity = await get<Caller>("/v1/caller");
  }

  /** Uses this token from now on, if the API knows it. */
  async login(token: string): Promise<void> {
    setToken(token);
    try {
      await this.ask();
    } catch (error) {
      setToken(null);
      throw error;
    }
  }

  logout(): void {
    setToken(null);
    this.identity = null;
  }
}

export const caller = new CallerState();
