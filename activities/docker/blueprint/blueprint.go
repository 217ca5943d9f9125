// Package blueprint plans containers like others.
package blueprint

import (
	"maps"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
)

// Blueprint is what an engine has to be told to make a container.
type Blueprint struct {
	Config  *container.Config
	Host    *container.HostConfig
	Network *network.NetworkingConfig
	// Extra are the networks beside the first: an engine before API 1.44 takes only one at the
	// creation.
	Extra []Connection
}

// Connection is one to a network.
type Connection struct {
	Network  string
	Endpoint *network.EndpointSettings
}

// Copy plans a container like the inspected one, with another image below it.
func Copy(model container.InspectResponse, image string) Blueprint {
	config, host := *model.Config, *model.HostConfig
	config.Image = image
	keepAnonymousVolumes(&host, model.Mounts)
	dropShared(&config, host)
	plan := Blueprint{Config: &config, Host: &host, Network: &network.NetworkingConfig{}}
	if model.NetworkSettings == nil {
		return plan
	}
	first := string(host.NetworkMode)
	for _, name := range slices.Sorted(maps.Keys(model.NetworkSettings.Networks)) {
		had := model.NetworkSettings.Networks[name]
		wanted := askedFor(had, model.ID)
		if name == first || had.NetworkID == first || name == network.NetworkBridge && host.NetworkMode.IsDefault() {
			plan.Network.EndpointsConfig = map[string]*network.EndpointSettings{name: wanted}
			continue
		}
		plan.Extra = append(plan.Extra, Connection{Network: name, Endpoint: wanted})
	}
	return plan
}

// askedFor keeps of an endpoint what people asked for, and leaves out what the engine made of it:
// its own alias for the short id would point at the wrong container, and a generated address would
// be pinned for ever.
func askedFor(had *network.EndpointSettings, id string) *network.EndpointSettings {
	wanted := &network.EndpointSettings{
		Links: had.Links, DriverOpts: had.DriverOpts, GwPriority: had.GwPriority,
		Aliases: slices.DeleteFunc(slices.Clone(had.Aliases), func(alias string) bool {
			return len(alias) == 12 && strings.HasPrefix(id, alias)
		}),
	}
	if had.IPAMConfig != nil {
		wanted.IPAMConfig = had.IPAMConfig
	}
	return wanted
}

// keepAnonymousVolumes names the volumes that only the engine has a name for. Without it the new
// container would get new and empty ones.
func keepAnonymousVolumes(host *container.HostConfig, mounts []container.MountPoint) {
	bound := map[string]bool{}
	for _, b := range host.Binds {
		if parts := strings.Split(b, ":"); len(parts) > 1 {
			bound[parts[1]] = true
		}
	}
	host.Mounts = slices.Clone(host.Mounts)
	for i, m := range host.Mounts {
		bound[m.Target] = true
		if m.Type == mount.TypeVolume && m.Source == "" {
			host.Mounts[i].Source = volumeAt(mounts, m.Target)
		}
	}
	host.Binds = slices.Clone(host.Binds)
	for _, m := range mounts {
		if m.Type != mount.TypeVolume || bound[m.Destination] {
			continue
		}
		bind := m.Name + ":" + m.Destination
		if !m.RW {
			bind += ":ro"
		}
		host.Binds = append(host.Binds, bind)
	}
}

func volumeAt(mounts []container.MountPoint, target string) string {
	for _, m := range mounts {
		if m.Destination == target {
			return m.Name
		}
	}
	return ""
}

// dropShared leaves out what an engine says of a container that shares another's namespaces, and
// then refuses to be told.
func dropShared(config *container.Config, host container.HostConfig) {
	if host.UTSMode.IsHost() || host.NetworkMode.IsContainer() {
		config.Hostname, config.Domainname = "", ""
	}
	if host.NetworkMode.IsContainer() {
		config.ExposedPorts = nil
	}
}
