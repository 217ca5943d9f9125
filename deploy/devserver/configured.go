package devserver

import (
	"fmt"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
)

// Configured reads the user's choice of a server: TEMPORAL_ADDRESS and its siblings, or the profile of the temporal CLI
// (TEMPORAL_PROFILE, else "default"). The bool says whether an address was named; without one a server has to be
// started, and the options hold no more than what else was set, such as a namespace.
func Configured() (client.Options, bool, error) {
	profile, err := envconfig.LoadClientConfigProfile(envconfig.LoadClientConfigProfileOptions{})
	if err != nil {
		return client.Options{}, false, fmt.Errorf("read the Temporal profile: %w", err)
	}
	opts, err := profile.ToClientOptions(envconfig.ToClientOptionsRequest{})
	if err != nil {
		return client.Options{}, false, fmt.Errorf("read the Temporal profile: %w", err)
	}
	return opts, profile.Address != "", nil
}
