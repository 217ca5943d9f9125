package host

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/yamlfile"
	"github.com/seed-62bf7108/unwind/worker/defaults"
	"github.com/seed-62bf7108/unwind/worker/notices"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// Config says what a worker may do, and where. Every field can be set in the file; environment
// variables override it, and flags of the worker command override those.
type Config struct {
	// Host is this worker's name in `on:` and in the name of its own task queue. Defaults to the
	// machine's host name. Environment: UNWIND_HOST.
	Host string `yaml:"host"`
	// Queue is the shared task queue. With QUEUE@HOST, which only that host can serve, it is the
	// host's own as well: an activity then goes to its worker without waiting for a poll. Defaults to
	// "unwind". Environment: UNWIND_QUEUE.
	Queue string `yaml:"queue"`
	// State is the folder of the worker's journals; it must survive restarts. Defaults to
	// $XDG_STATE_HOME/unwind, else ~/.local/state/unwind. Environment: UNWIND_STATE.
	State string `yaml:"state"`
	// writtenState is the state that the config says where the environment says another one.
	writtenState string
	// Listen is the address of /healthz and /metrics; empty: none. Defaults to none. Environment:
	// UNWIND_LISTEN.
	Listen string `yaml:"listen"`
	// Activities is how many activities run at once. Defaults to 100.
	Activities int `yaml:"activities"`
	// StopTimeout is how long a stopping worker lets running activities finish. Defaults to 30s.
	StopTimeout time.Duration `yaml:"stopTimeout"`
	// Heartbeat is the time without a heartbeat after which an attempt counts as dead. Defaults to
	// 10s.
	Heartbeat time.Duration `yaml:"heartbeat"`
	// HostWait is how long an undo waits on the queue of its host before the task shows that it waits
	// for that host. Defaults to 0: the engine's own 2m.
	HostWait time.Duration `yaml:"hostWait"`
	// Secrets says where the values of secrets are: "env:VARIABLE" or "file:/path". Tasks may refer to
	// them, but for those that the worker uses itself (stripe.key, those of notices). All are masked in
	// whatever leaves a call. Defaults to none.
	Secrets map[string]string `yaml:"secrets"`
	// SecretActions limits secrets to actions, by name: "stripe.refund.create", or "stripe.*" for all
	// of a world. Defaults to every action.
	SecretActions map[string][]string `yaml:"secretActions"`
	// Schedules is "on" or "off": whether a starting worker makes sure that the Temporal Schedules
	// exist that recover dead runs and release expired records. If off, somebody else has to start the
	// workflows Sweep and Retain. Defaults to "on". Environment: UNWIND_SCHEDULES.
	Schedules string `yaml:"schedules"`
	// Notices are the channels by which people are told of what waits for them. Give all workers of a
	// queue the same. Defaults to none.
	Notices []notices.Channel `yaml:"notices"`
	// Page is the address of the page of starter serve, to which notices link. Defaults to none.
	Page string `yaml:"page"`
	// Retention bounds what the journals of this host keep.
	Retention RetentionConfig `yaml:"retention"`
	// CheckCommands are the programs that command checks may run; "*" allows any. Defaults to none.
	CheckCommands []string `yaml:"checkCommands"`
	// CheckAddresses are what HTTP checks may ask: HOST, HOST:PORT, or "*" for any. Defaults to none.
	CheckAddresses []string `yaml:"checkAddresses"`
	// Gates say which changes a person must approve, by action: "high" for those of high risk,
	// "always" for all. A key is the name of an action, "terraform.apply"; "postgres.*" for all of a
	// world that change something; or "*". No task file and no agent goes below it; of several keys
	// that match, the strictest counts. Defaults to none: high, unless a task file says gate: none.
	Gates activities.Floors `yaml:"gates"`
	// Purposes is for how long this host remembers what a step was for that pays or cannot be taken
	// back: a step of another task by the same agent for the same purpose must be approved by a
	// person. Defaults to 24h.
	Purposes time.Duration `yaml:"purposes"`
	// CutDiffs is "ask" or "refuse": what becomes of a planned change whose diff is longer than a gate
	// can show. Ask shows the beginning, and says how much is missing. Defaults to "ask".
	CutDiffs string `yaml:"cutDiffs"`

	// Policy is the file of the rules that decide what happens without a person, what with whom, and
	// what not at all. Relative to the folder of the config file. Defaults to none.
	Policy string `yaml:"policy"`
	// PolicyToken is the name of the secret that the policy's OPA is sent as a bearer token. Defaults to
	// none.
	PolicyToken activities.OwnSecret `yaml:"policyToken"`
	// Approvals say whose signed decisions count; with them, a decision that is not signed decides
	// nothing. Defaults to none: a name is a claim.
	Approvals *ApprovalsConfig `yaml:"approvals"`

	// Worlds are the settings of the worlds that it opens: the Settings of their packages. In the
	// file, each is a section with the name of its world (Kinds). Defaults to none.
	Worlds []activities.Settings `yaml:"-"`

	file    string // where it was read from
	written yamlfile.Places
}

// The values of Config.CutDiffs.
const (
	ask    = "ask"
	refuse = "refuse"
)

// The values of Config.Schedules.
const (
	on  = "on"
	off = "off"
)

// ApprovalsConfig says who may decide. The files are relative to the folder of the config file, and read
// for each decision.
type ApprovalsConfig struct {
	// Signers is a file of OpenSSH's allowed signers. Required.
	Signers string `yaml:"signers"`
	// Revoked is a file of public keys, one a line, that no longer count. Defaults to none.
	Revoked string `yaml:"revoked"`
}

// RetentionConfig bounds what is kept to roll back committed tasks; what an open task needs is
// always kept.
type RetentionConfig struct {
	// Versions is how many records of one file are kept. Defaults to 50.
	Versions int `yaml:"versions"`
	// Checkpoints is how many records of one container are kept. Defaults to 1000.
	Checkpoints int `yaml:"checkpoints"`
	// Bytes bounds the size of the records of one world. Defaults to 500 MB. What a task has pinned
	// counts, here and above, but stays for as long as its task says.
	Bytes int64 `yaml:"bytes"`
	// Audit is how long the outcome of a released record is kept. Defaults to 168h.
	Audit time.Duration `yaml:"audit"`
}

// WithEnvironment overrides fields by the variables that are set.
func (c Config) WithEnvironment(lookup func(string) (string, bool)) Config {
	for name, field := range map[string]*string{
		"UNWIND_HOST": &c.Host, "UNWIND_QUEUE": &c.Queue, "UNWIND_STATE": &c.State, "UNWIND_LISTEN": &c.Listen,
		"UNWIND_SCHEDULES": &c.Schedules,
	} {
		v, set := lookup(name)
		if name == "UNWIND_STATE" && set && c.State != "" && c.State != v {
			c.writtenState = c.State
		}
		if set {
			*field = v
		}
	}
	return c
}

// WithDefaults fills in what is empty.
func (c Config) WithDefaults() (Config, error) {
	var err error
	if c.Host == "" {
		if c.Host, err = defaults.Host(); err != nil {
			return c, err
		}
	}
	c.Queue = cmp.Or(c.Queue, defaults.Queue)
	if c.State == "" {
		if c.State, err = defaults.State(); err != nil {
			return c, err
		}
	}
	if c.Activities == 0 {
		c.Activities = 100
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = 30 * time.Second
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = 10 * time.Second
	}
	c.Schedules = cmp.Or(c.Schedules, on)
	c.Purposes = cmp.Or(c.Purposes, 24*time.Hour)
	c.CutDiffs = cmp.Or(c.CutDiffs, ask)
	return c, nil
}

// queues are the task queues that a worker serves: the shared one first, then its host's own, if
// that is another.
func (c Config) queues() []string {
	return slices.Compact([]string{c.Queue, task.HostQueue(c.Queue, c.Host)})
}

var hostName = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,62})$`)

// Validate reports every invalid field.
func (c Config) Validate() error {
	var problems []error
	bad := func(field, format string, args ...any) {
		problems = append(problems, fmt.Errorf("%s: %s: "+format, append([]any{c.cite(field), field}, args...)...))
	}
	if !hostName.MatchString(c.Host) {
		bad("host", "%q must be lower-case letters, digits, dots, dashes and underscores, at most 63", c.Host)
	}
	if !filepath.IsAbs(c.State) {
		bad("state", "%q must be an absolute path", c.State)
	}
	if _, of, isOwn := strings.Cut(c.Queue, "@"); isOwn && of != c.Host {
		bad("queue", "%q is the queue of host %q alone, and this is %q", c.Queue, of, c.Host)
	}
	if c.Heartbeat < time.Second {
		bad("heartbeat", "%s is too short; give at least 1s", c.Heartbeat)
	}
	if c.HostWait != 0 && c.HostWait < time.Second {
		bad("hostWait", "%s is too short; give at least 1s", c.HostWait)
	}
	if c.Purposes < 0 {
		bad("purposes", "%s is negative; give how long a purpose is remembered, as in 24h", c.Purposes)
	}
	if c.CutDiffs != ask && c.CutDiffs != refuse {
		bad("cutDiffs", "%q must be %s or %s", c.CutDiffs, ask, refuse)
	}
	for action, level := range c.Gates {
		if !slices.Contains(activities.Levels, level) {
			bad("gates."+action, "%q must be %s or %s", level, activities.FromHigh, activities.Always)
		}
	}
	if c.Schedules != on && c.Schedules != off {
		bad("schedules", "%q must be %s or %s", c.Schedules, on, off)
	}
	if min(c.Retention.Versions, c.Retention.Checkpoints) < 0 || c.Retention.Bytes < 0 || c.Retention.Audit < 0 {
		bad("retention", "%+v: negative numbers are not allowed", c.Retention)
	}
	notices.Check(c.Notices, workerSecrets{c}.Has, bad)
	if u, err := url.Parse(c.Page); c.Page != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" ||
		u.Host == "" || u.User != nil || u.RawQuery != "") {
		bad("page", "%q must be the address of the page of starter serve, such as https://unwind.example.com", c.Page)
	}
	if c.PolicyToken != "" && !(workerSecrets{c}).Has(string(c.PolicyToken)) {
		bad("policyToken", "%q is not one of secrets; name one, as in secrets: {%s: \"file:/path\"}", c.PolicyToken,
			c.PolicyToken)
	}
	if c.Approvals != nil && c.Approvals.Signers == "" {
		bad("approvals.signers", "it is missing; name the file of allowed signers, as in signers: allowed_signers")
	}
	c.checkAddresses(bad)
	c.checkSecrets(bad)
	problems = append(problems, c.checkWorlds(bad))
	return errors.Join(problems...)
}

func (c Config) checkAddresses(bad activities.Bad) {
	for _, address := range c.CheckAddresses {
		if address == "" || strings.ContainsAny(address, "/@ ") || address[0] == '[' && !strings.Contains(address, "]:") {
			bad("checkAddresses", "%q must be a host, or one with a port such as localhost:8080 or [::1]:8080; * is any",
				address)
		}
	}
}

func (c Config) checkSecrets(bad activities.Bad) {
	for name, source := range c.Secrets {
		if kind, value, ok := strings.Cut(source, ":"); !ok || value == "" || kind != "env" && kind != "file" {
			bad("secrets."+name, "%q must be env:VARIABLE or file:/path", source)
		}
	}
	for name, actions := range c.SecretActions {
		if _, known := c.Secrets[name]; !known {
			bad("secretActions."+name, "it is not one of secrets")
		}
		if len(actions) == 0 {
			bad("secretActions."+name, "name at least one action, such as file.write, or file.* for all of a world")
		}
	}
}

// checkWorlds checks the settings of each world.
func (c Config) checkWorlds(bad activities.Bad) error {
	var problems []error
	isThere := map[string]bool{}
	for _, s := range c.Worlds {
		name := s.World()
		if isThere[name] {
			bad(name, "it is among the worlds twice")
		}
		isThere[name] = true
		if err := s.Check(c.Opening(),
			func(field, format string, args ...any) { bad(name+"."+field, format, args...) }); err != nil {
			problems = append(problems, fmt.Errorf("config: %w", err))
		}
	}
	return errors.Join(problems...)
}
