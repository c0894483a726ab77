// The change that the operator is asked about, and what came of the last one.

import { changeIf } from "../api/client";
import type { Action } from "../pure/commands";
import { live } from "./live.svelte";

class Acting {
  /** The action that the dialog shows; a function if the operator chooses a number first. */
  asked = $state.raw<Action | null>(null);
  /** With a number: its label, its first value, and the action for each value. */
  choice = $state.raw<Choice | null>(null);
  /** The outcome of the last action. */
  outcome = $state.raw<Outcome | null>(null);

  ask(action: Action): void {
    this.choice = null;
    this.asked = action;
  }

  askNumber(choice: Choice): void {
    this.choice = choice;
    this.asked = choice.action(choice.value);
  }

  dismiss(): void {
    this.asked = null;
    this.choice = null;
  }

  async run(action: Action): Promise<void> {
    const tag = await changeIf(action.method, action.path, action.body, action.ifMatch);
    this.dismiss();
    // The undo of a conditional action is conditional, too: on the state that the action has made.
    const undo = action.undo && action.ifMatch ? { ...action.undo, ifMatch: tag } : action.undo;
    this.outcome = { action: { ...action, undo }, at: Date.now() };
    live.start();
  }
}

export interface Choice {
  label: string;
  value: number;
  min: number;
  max: number;
  action: (value: number) => Action;
}

export interface Outcome {
  action: Action;
  at: number;
}

export const acting = new Acting();
