// Package rest serves the checkpoints of environments over HTTP: the tools of an agent, for pages
// and programs. What it serves is described by the OpenAPI document at /openapi.json, from which
// requests are checked. Errors are problem details (RFC 9457).
//
// Whoever bears a token sees the environments of that token's owner; one of somebody else is not
// there. Without tokens all environments are everybody's who reaches the address.
package rest
