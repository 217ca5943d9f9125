package engine

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestASocketThatIsNotOursIsNotToldToBeStarted(t *testing.T) {
	err := Explain("looking", errors.New("permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock"))
	require.ErrorContains(t, err, "add the user to the group that owns the socket")
	require.NotContains(t, err.Error(), "start it")
}
