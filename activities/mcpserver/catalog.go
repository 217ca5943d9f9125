package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// catalog is the tools of a server: as it lists them, and by name.
type catalog struct {
	listed []json.RawMessage
	tools  map[string]listedTool
}

// listedTool is a tool as its server lists it.
type listedTool struct {
	raw        json.RawMessage
	isReadOnly bool // as its annotation says
	// isAmbiguous means that the server lists it more than once, and not the same: which of them a
	// call would reach is not known.
	isAmbiguous bool
}

// catalogNow is the catalog, which is read again if the server has said that it is another.
func (c *connection) catalogNow(ctx context.Context) (catalog, error) {
	release, err := c.listing.Take(ctx, "tools")
	if err != nil {
		return catalog{}, err
	}
	defer release()
	c.mu.Lock()
	all, isChanged := c.catalog, c.isChanged
	c.isChanged = false
	c.mu.Unlock()
	if !isChanged {
		return all, nil
	}
	if all, err = c.list(ctx); err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.isChanged = true // what was read before no longer holds
		return catalog{}, fmt.Errorf("tools/list: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.catalog = all
	return all, nil
}

// list reads the list of tools.
func (c *connection) list(ctx context.Context) (catalog, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listWithin, fmt.Errorf("it has taken more than %v", listWithin))
	defer cancel()
	all := catalog{tools: map[string]listedTool{}}
	var bounds listing
	for cursor := ""; ; {
		params := map[string]any{}
		if cursor != "" {
			params["cursor"] = cursor
		}
		a, err := c.send(ctx, "tools/list", params)
		if err == nil && a.Error != nil {
			err = a.Error
		}
		if err != nil {
			return all, err
		}
		var page struct {
			Tools      []json.RawMessage `json:"tools"`
			NextCursor string            `json:"nextCursor"`
		}
		if err := json.Unmarshal(a.Result, &page); err != nil {
			return all, err
		}
		if page.Tools == nil {
			return all, errors.New("its answer is no list of tools")
		}
		if err := bounds.take(a.Result, page.NextCursor); err != nil {
			return all, err
		}
		for _, raw := range page.Tools {
			if err := all.add(raw); err != nil {
				return all, err
			}
		}
		if cursor = page.NextCursor; cursor == "" {
			return all, nil
		}
	}
}

// add adds a tool. One that is there already, as it is, is left out.
func (c *catalog) add(raw json.RawMessage) error {
	var tool struct {
		Name        string `json:"name"`
		Annotations struct {
			ReadOnlyHint bool `json:"readOnlyHint"`
		} `json:"annotations"`
	}
	if err := json.Unmarshal(raw, &tool); err != nil {
		return err
	}
	made := listedTool{raw: raw, isReadOnly: tool.Annotations.ReadOnlyHint}
	earlier, isTwice := c.tools[tool.Name]
	if isTwice && bytes.Equal(earlier.raw, raw) {
		return nil
	}
	made.isAmbiguous = isTwice
	c.tools[tool.Name] = made
	c.listed = append(c.listed, raw)
	return nil
}
