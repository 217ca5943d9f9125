package blueprint

import (
	"maps"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"
)

// CopyFrom plans a container like the old one from another image: what it had from its image, it
// has from the new one. Had is what that image says; nil: nobody knows.
func CopyFrom(old container.InspectResponse, image string, had *dockerspec.DockerOCIImageConfig) Blueprint {
	plan := Copy(old, image)
	if had == nil {
		return plan
	}
	c := plan.Config
	c.Env = slices.DeleteFunc(slices.Clone(c.Env), func(v string) bool { return slices.Contains(had.Env, v) })
	c.Labels = maps.Clone(c.Labels)
	maps.DeleteFunc(c.Labels, func(name, value string) bool { is, has := had.Labels[name]; return has && is == value })
	if slices.Equal(c.Entrypoint, had.Entrypoint) {
		c.Entrypoint = nil
		if slices.Equal(c.Cmd, had.Cmd) {
			c.Cmd = nil
		}
	}
	if c.User == had.User {
		c.User = ""
	}
	if c.WorkingDir == had.WorkingDir {
		c.WorkingDir = ""
	}
	if c.StopSignal == had.StopSignal {
		c.StopSignal = ""
	}
	return plan
}

// ForTrial leaves out of a plan what only one container can have: published ports, fixed addresses,
// names in networks and of its own. What the old container has mounted, a trial only reads: nothing
// gives back what it would write there.
func ForTrial(plan Blueprint) Blueprint {
	plan.Config.Hostname, plan.Config.Domainname = "", ""
	plan.Host.Binds, plan.Host.Mounts = onlyRead(plan.Host.Binds), slices.Clone(plan.Host.Mounts)
	for i, m := range plan.Host.Mounts {
		plan.Host.Mounts[i].ReadOnly = m.ReadOnly || m.Type != mount.TypeTmpfs
	}
	plan.Host.VolumesFrom = slices.Clone(plan.Host.VolumesFrom)
	for i, from := range plan.Host.VolumesFrom {
		from, _, _ = strings.Cut(from, ":")
		plan.Host.VolumesFrom[i] = from + ":ro"
	}
	plan.Host.PortBindings, plan.Host.PublishAllPorts = nil, false
	plan.Host.RestartPolicy = container.RestartPolicy{}
	plan.Config.MacAddress = "" //nolint:staticcheck // what an engine before API 1.44 reads
	for _, endpoint := range plan.Network.EndpointsConfig {
		endpoint.Aliases, endpoint.IPAMConfig = nil, nil
	}
	for _, n := range plan.Extra {
		n.Endpoint.Aliases, n.Endpoint.IPAMConfig = nil, nil
	}
	return plan
}

// onlyRead is a list of binds ("what:where" or "what:where:options") without those to write.
func onlyRead(binds []string) []string {
	read := make([]string, 0, len(binds))
	for _, b := range binds {
		parts := strings.SplitN(b, ":", 3)
		options := []string{"ro"}
		if len(parts) == 3 {
			for o := range strings.SplitSeq(parts[2], ",") {
				if o != "rw" && o != "ro" {
					options = append(options, o)
				}
			}
		}
		if len(parts) > 1 {
			b = parts[0] + ":" + parts[1] + ":" + strings.Join(options, ",")
		}
		read = append(read, b)
	}
	return read
}
