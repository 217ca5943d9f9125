package blueprint

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"

	"github.com/seed-62bf7108/unwind/activities"
)

// ownWords are what an engine says of a container that nobody has asked it for: all else is how the
// container was made.
var ownWords = []string{
	"Id", "Name", "Created", "State", "RestartCount", "ExecIDs", "SizeRw", "SizeRootFs",
	"ResolvConfPath", "HostnamePath", "HostsPath", "LogPath", "GraphDriver", "Storage", "MountLabel", "ProcessLabel",
	// of these, what people have asked for is in a blueprint
	"NetworkSettings",
}

// Differs names the settings that differ between two containers, by all that an engine says of each.
// A setting that nobody here knows counts. No value is named: it may be a secret.
func Differs(was, is json.RawMessage) ([]string, error) {
	var settings [2]map[string]any
	for i, said := range []json.RawMessage{was, is} {
		var err error
		if settings[i], err = settingsOf(said); err != nil {
			return nil, err
		}
	}
	return differing("", settings[0], settings[1]), nil
}

// Unknown names the settings of a container that a blueprint of it would leave out, because the
// engine knows more than its client here.
func Unknown(said json.RawMessage) ([]string, error) {
	c, all, err := decode(said)
	if err != nil {
		return nil, err
	}
	told, err := asMap(map[string]any{"Config": c.Config, "HostConfig": c.HostConfig})
	if err != nil {
		return nil, err
	}
	var unknown []string
	for _, part := range []string{"Config", "HostConfig"} {
		its, _ := all[part].(map[string]any)
		known, _ := told[part].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(its)) {
			if _, knows := known[name]; !knows && !isUnset(its[name]) {
				unknown = append(unknown, part+"."+name)
			}
		}
	}
	return unknown, nil
}

// isUnset says that a setting has the value of one that nobody has given: if the engine then makes
// another of it, Differs says so.
func isUnset(v any) bool { return isEmpty(v) || v == false || v == 0.0 || v == "" }

// settingsOf is how a container was made: two that are made from one blueprint have the same.
func settingsOf(said json.RawMessage) (map[string]any, error) {
	c, all, err := decode(said)
	if err != nil {
		return nil, err
	}
	plan := Copy(c, "")
	networks := map[string]*network.EndpointSettings{}
	maps.Copy(networks, plan.Network.EndpointsConfig)
	for _, extra := range plan.Extra {
		networks[extra.Network] = extra.Endpoint
	}
	for _, endpoint := range networks { // an engine gives it this name by itself, at a start
		endpoint.Aliases = slices.DeleteFunc(endpoint.Aliases, func(alias string) bool { return alias == c.Config.Hostname })
	}
	slices.SortFunc(c.Mounts, func(a, b container.MountPoint) int {
		return strings.Compare(a.Destination, b.Destination)
	})
	for i := range c.Mounts {
		c.Mounts[i].Mode = "" // it says in other words what RW and the options of the mount do
	}
	for _, name := range ownWords {
		delete(all, name)
	}
	planned, err := asMap(map[string]any{"Config": plan.Config, "HostConfig": plan.Host, "Mounts": c.Mounts,
		"Networks": networks})
	if err != nil {
		return nil, err
	}
	all["Mounts"], all["Networks"] = planned["Mounts"], planned["Networks"]
	for part, names := range map[string][]string{
		"Config":     {"Hostname", "Domainname", "ExposedPorts", "Image"}, // that is a name, and Image beside it the image
		"HostConfig": {"Binds", "Mounts"},
	} {
		its, _ := all[part].(map[string]any)
		copied, _ := planned[part].(map[string]any)
		if its == nil || copied == nil {
			continue
		}
		for _, name := range names {
			its[name] = copied[name]
		}
	}
	return all, nil
}

func decode(said json.RawMessage) (c container.InspectResponse, all map[string]any, err error) {
	if err = json.Unmarshal(said, &c); err != nil {
		return c, nil, err
	}
	err = json.Unmarshal(said, &all)
	return c, all, err
}

func asMap(v any) (all map[string]any, err error) {
	raw, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(raw, &all)
	}
	return all, err
}

// differing names the members that differ, and of those that are objects, which of theirs.
func differing(in string, was, is map[string]any) (names []string) {
	all := maps.Clone(was)
	maps.Copy(all, is)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		a, b := was[name], is[name]
		its, both := a.(map[string]any)
		others, isObject := b.(map[string]any)
		switch {
		case isEmpty(a) && isEmpty(b) || reflect.DeepEqual(a, b):
		case both && isObject && (in == "" || in == "Config." || in == "HostConfig."):
			names = append(names, differing(in+name+".", its, others)...)
		default:
			names = append(names, in+name)
		}
	}
	return names
}

// isEmpty says that nothing is set, as engines say it in one way or the other.
func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// Digest is that of all settings of a container; empty of none.
func Digest(said json.RawMessage) (activities.Digest, error) {
	if len(said) == 0 {
		return "", nil
	}
	settings, err := settingsOf(said)
	if err != nil {
		return "", err
	}
	raw, err := json.Marshal(settings)
	return activities.DigestOf(raw), err
}
