package host

import (
	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

var DropSchedulesOfGoneHosts = dropSchedulesOfGoneHosts

// OpenEnvironments opens the world of environments as a worker with this config does.
func OpenEnvironments(c Config, server recovery.Server) (activities.World, error) {
	return SettingsOf[*EnvironmentSettings](c).openOn(c.Opening(), server)
}
