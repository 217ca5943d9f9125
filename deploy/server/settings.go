package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.temporal.io/server/common/dynamicconfig"
)

// settingsFlag collects --dynamic-config-value KEY=VALUE, like the temporal CLI's server.
type settingsFlag map[string]any

func (f *settingsFlag) String() string {
	keys := slices.Sorted(maps.Keys(*f))
	for i, key := range keys {
		keys[i] = fmt.Sprintf("%s=%v", key, (*f)[key])
	}
	return strings.Join(keys, ",")
}

func (f *settingsFlag) Set(s string) error {
	key, text, ok := strings.Cut(s, "=")
	if !ok || key == "" {
		return fmt.Errorf("%q is not KEY=VALUE", s)
	}
	var value any
	if n, err := strconv.Atoi(text); err == nil {
		value = n
	} else if err := json.Unmarshal([]byte(text), &value); err != nil {
		return fmt.Errorf("%q is not JSON: %w", text, err)
	}
	if *f == nil {
		*f = settingsFlag{}
	}
	(*f)[key] = value
	return nil
}

// applyTo returns tuned with the settings in f replaced.
func (f settingsFlag) applyTo(tuned dynamicconfig.StaticClient) dynamicconfig.StaticClient {
	for key, value := range f {
		tuned[dynamicconfig.MakeKey(key)] = value
	}
	return tuned
}
