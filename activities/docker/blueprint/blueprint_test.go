package blueprint

import (
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
	plan := Copy(model, "sha256:x")
	assert.Equal(t, map[string]*network.EndpointSettings{
		"one": {Aliases: []string{"web"}, IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: "10.0.0.7"}},
	}, plan.Network.EndpointsConfig)
	assert.Equal(t, []Connection{{"two", &network.EndpointSettings{}}}, plan.Extra)
	assert.Equal(t, "sha256:x", plan.Config.Image)
	assert.Equal(t, "web:1", model.Config.Image, "the model is not changed")
	assert.Equal(t, "h", plan.Config.Hostname)
}

func TestCopyOfAContainerOnTheDefaultNetwork(t *testing.T) {
	plan := Copy(modelOf("default", map[string]*network.EndpointSettings{"bridge": {}}), "sha256:x")
	assert.Contains(t, plan.Network.EndpointsConfig, "bridge")
	assert.Empty(t, plan.Extra)
}

func TestCopyOfAContainerInAnothersNetwork(t *testing.T) {
	plan := Copy(modelOf("container:abc", nil), "sha256:x")
	assert.Empty(t, plan.Config.Hostname, "an engine refuses it together with another's network")
	assert.Empty(t, plan.Config.ExposedPorts)
	assert.Equal(t, container.NetworkMode("container:abc"), plan.Host.NetworkMode)
}
