package engine

import (
	"errors"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/require"
)

func TestASocketThatIsNotOursIsNotToldToBeStarted(t *testing.T) {
	err := Explain("looking",
		errors.New("permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock"))
	require.ErrorContains(t, err, "add the user to the group that owns the socket")
	require.NotContains(t, err.Error(), "start it")
}

func TestWhatMayMount(t *testing.T) {
	for may, host := range map[string]container.HostConfig{
		"mount": {CapAdd: []string{"SYS_ADMIN"}}, "mount too": {CapAdd: []string{"cap_sys_admin"}},
		"do all": {CapAdd: []string{"ALL"}}, "": {Privileged: true},
	} {
		require.True(t,
			MayMount(container.InspectResponse{ContainerJSONBase: &container.ContainerJSONBase{HostConfig: &host}}), may)
	}
	require.False(t,
		MayMount(container.InspectResponse{
			ContainerJSONBase: &container.ContainerJSONBase{HostConfig: &container.HostConfig{CapAdd: []string{"NET_ADMIN"}}}}))
}
