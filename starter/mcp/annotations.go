package mcp

import (
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

type destruction bool

type repetition bool

const (
	additive    destruction = false
	destructive destruction = true

	notIdempotent repetition = false
	idempotent    repetition = true
)

// changes are the annotations of a tool that changes something.
func changes(d destruction, r repetition) *sdk.ToolAnnotations {
	return &sdk.ToolAnnotations{DestructiveHint: new(bool(d)), IdempotentHint: bool(r)}
}

// reads are the annotations of a tool that only looks.
func reads() *sdk.ToolAnnotations {
	return &sdk.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, DestructiveHint: new(false)}
}
