package blueprint

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// said is what an engine says of a container, with some of it replaced.
func said(replace ...string) json.RawMessage {
	return json.RawMessage(strings.NewReplacer(replace...).Replace(`{"Id": "` + strings.Repeat("ab", 32) + `", "Image": "sha256:1",
		"Created": "then", "State": {"Status": "running"}, "Path": "/bin/app", "Args": [],
		"Config": {"Hostname": "web", "Image": "web:1", "Env": ["PASSWORD=hunter2"], "Labels": null},
		"HostConfig": {"NetworkMode": "one", "Memory": 0, "Future": 0, "RestartPolicy": {"Name": "always"}},
		"Mounts": [{"Type": "volume", "Name": "v", "Destination": "/v", "Mode": "z", "RW": true}],
		"NetworkSettings": {"Networks": {"one": {"Aliases": ["store"], "IPAddress": "10.0.0.7"}}}}`))
}

func TestDiffersNamesWhatPeopleHaveAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		is   json.RawMessage
		want []string
	}{
		"the engine's own": {is: said("then", "now", "running", "exited", "10.0.0.7", "10.0.0.8", strings.Repeat("ab", 32),
			strings.Repeat("cd", 32), "web:1", "sha256:1", `"Mode": "z"`, `"Mode": ""`, "null", "{}")},
		"a name that a start gives": {is: said(`["store"]`, `["store", "web"]`)},
		"a secret":                  {said("hunter2", "hunter3"), []string{"Config.Env"}},
		"a member":                  {said("always", "no"), []string{"HostConfig.RestartPolicy.Name"}},
		"a network":                 {said(`"store"`, `"shop"`), []string{"Networks.one"}},
		"a mount":                   {said("true", "false"), []string{"HostConfig.Binds", "Mounts"}},
		"the image":                 {said(`"Image": "sha256:1"`, `"Image": "sha256:2"`), []string{"Image"}},
		"what nobody knows":         {said(`"Path"`, `"Tomorrow": {"on": true}, "Path"`), []string{"Tomorrow"}},
	} {
		differs, err := Differs(said(), c.is)
		require.NoError(t, err)
		assert.Equal(t, c.want, differs, name)
	}
}

func TestASettingThatTheClientDoesNotKnowIsNamed(t *testing.T) {
	unknown, err := Unknown(said())
	require.NoError(t, err)
	require.Empty(t, unknown, "it is as if nobody had set it")
	unknown, err = Unknown(said(`"Future": 0`, `"Future": 7`))
	require.NoError(t, err)
	require.Equal(t, []string{"HostConfig.Future"}, unknown)
}
