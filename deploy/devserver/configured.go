package devserver

import (
	"errors"
	"fmt"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
)

// Configured reads the user's choice of a server: TEMPORAL_ADDRESS and related variables, or a
// profile of the temporal CLI (TEMPORAL_PROFILE, by default "default"). It also returns whether an
// address is set. If not, a server has to be started, and the options hold only the other settings,
// such as a namespace.
func Configured(r envconfig.ToClientOptionsRequest) (client.Options, bool, error) {
	profile, err := envconfig.LoadClientConfigProfile(envconfig.LoadClientConfigProfileOptions{})
	if err != nil {
		return client.Options{}, false, fmt.Errorf("read the Temporal profile: %w", err)
	}
	if profile.Codec != nil && profile.Codec.Endpoint == "" && profile.Codec.Auth != "" {
		return client.Options{}, false,
			errors.New("the Temporal profile has a key for a codec server, and no address of one: " +
				"TEMPORAL_CODEC_ENDPOINT is not set, and neither is codec.endpoint in the profile")
	}
	opts, err := profile.ToClientOptions(r)
	if err != nil {
		return client.Options{}, false, fmt.Errorf("read the Temporal profile: %w", err)
	}
	return opts, profile.Address != "", nil
}
