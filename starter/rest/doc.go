// Package rest serves tasks, with what is decided about them, and the checkpoints of environments
// over HTTP, for pages and programs. What it serves is described by the OpenAPI document at
// /openapi.json, from which requests are checked. Errors are problem details (RFC 9457).
//
// Whoever bears a token sees all tasks, may do what the role of its person allows, and sees the
// environments whose owner that person is; one of somebody else is not there. Without tokens all is
// everybody's who reaches the address.
package rest
