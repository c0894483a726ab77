// Names of the API's types, which `npm run types` makes from docs/openapi.json.
import type { components } from "./schema";

type Schemas = components["schemas"];

export type Backend = Schemas["BackendStatus"];
export type Caller = Schemas["CallerIdentity"];
export type Checked = Schemas["Checked"];
export type ConfigState = Schemas["ConfigState"];
export type ConfigText = Schemas["ConfigText"];
export type Event = Schemas["Event"];
export type FlowAnswer = Schemas["FlowAnswer"];
export type FrontDoor = Schemas["FrontDoorStatus"];
export type Health = Schemas["Liveness"];
export type Nodes = Schemas["Nodes"];
export type Node = Schemas["NodeStatus"];
export type NodeHistory = Schemas["NodeHistory"];
export type Plan = Schemas["PlanStatus"];
export type PlannedPool = Schemas["PlannedPool"];
export type Pool = Schemas["PoolStatus"];
export type Role = Schemas["Role"];
export type SlicePlan = Schemas["SlicePlan"];
export type Status = Schemas["Status"];
export type Stream = Schemas["StreamStatus"];
export type Streams = Schemas["Streams"];
export type WhyAnswer = Schemas["WhyAnswer"];
export type WhyQuestion = Schemas["WhyQuestion"];
