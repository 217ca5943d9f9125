package container

import (
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/go-connections/nat"
	"github.com/stretchr/testify/assert"
)

func modelOf(mode container.NetworkMode, networks map[string]*network.EndpointSettings) container.InspectResponse {
	return container.InspectResponse{
		ContainerJSONBase: &container.ContainerJSONBase{
			ID: strings.Repeat("ab", 32), HostConfig: &container.HostConfig{NetworkMode: mode},
		},
		Config: &container.Config{
			Hostname: "h", Image: "web:1", ExposedPorts: nat.PortSet{"80/tcp": {}},
		},
		NetworkSettings: &container.NetworkSettings{Networks: networks},
	}
}

func TestCopyLeavesOutWhatTheEngineMadeUp(t *testing.T) {
	model := modelOf("one", map[string]*network.EndpointSettings{
		"one": {
			Aliases: []string{"web", "abababababab"}, IPAddress: "10.0.0.7", MacAddress: "02:42:0a:00:00:07",
			IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: "10.0.0.7"},
		},
		"two": {NetworkID: "n2", IPAddress: "10.1.0.7"},
	})
	plan := copyOf(model, "sha256:x")
	assert.Equal(t, map[string]*network.EndpointSettings{
		"one": {Aliases: []string{"web"}, IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: "10.0.0.7"}},
	}, plan.network.EndpointsConfig)
	assert.Equal(t, []connection{{"two", &network.EndpointSettings{}}}, plan.extra)
	assert.Equal(t, "sha256:x", plan.config.Image)
	assert.Equal(t, "web:1", model.Config.Image, "the model is not changed")
	assert.Equal(t, "h", plan.config.Hostname)
}

func TestCopyOfAContainerOnTheDefaultNetwork(t *testing.T) {
	plan := copyOf(modelOf("default", map[string]*network.EndpointSettings{"bridge": {}}), "sha256:x")
	assert.Contains(t, plan.network.EndpointsConfig, "bridge")
	assert.Empty(t, plan.extra)
}

func TestCopyOfAContainerInAnothersNetwork(t *testing.T) {
	plan := copyOf(modelOf("container:abc", nil), "sha256:x")
	assert.Empty(t, plan.config.Hostname, "an engine refuses it together with another's network")
	assert.Empty(t, plan.config.ExposedPorts)
	assert.Equal(t, container.NetworkMode("container:abc"), plan.host.NetworkMode)
}

func TestAnUndoBeatsCandidatesOfForwardsAndAResetThoseOfUndos(t *testing.T) {
	const token = "0123456789abcdef0123456789abcdef"
	name := func(turn string) string { return "/unwind-" + token + "-" + turn + "-abcdefgh" }
	for turn, beaten := range map[string][]string{
		resetTurn:     {resetTurn, undoTurn, redoTurn, attemptDoc(2)},
		undoTurn:      {undoTurn, redoTurn, attemptDoc(2)},
		redoTurn:      {redoTurn},
		attemptDoc(2): {attemptDoc(2)},
	} {
		for _, other := range []string{resetTurn, undoTurn, redoTurn, attemptDoc(2), attemptDoc(3)} {
			want := slices.Contains(beaten, other) || other == attemptDoc(3) && rank(turn) > 0
			if got := (rollback{Token: token, Turn: turn}).beaten(name(other)); got != want {
				t.Errorf("%s beats %s: %v", turn, other, got)
			}
		}
	}
	if (rollback{Token: token[1:] + "0", Turn: resetTurn}).beaten(name(undoTurn)) {
		t.Error("another token's candidate is nobody else's")
	}
}
