package host

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/seed-62bf7108/unwind/activities/container"
)

// DefaultQueue is the shared task queue if no other is named.
const DefaultQueue = "unwind"

// Config says what a worker may do, and where. Every field can be set in the file; environment variables override it, and
// flags of the worker command override those.
type Config struct {
	// Host is this worker's name in `on:` and in the name of its own task queue. Defaults to the machine's host name.
	// Environment: UNWIND_HOST.
	Host string `yaml:"host"`
	// Queue is the shared task queue. Defaults to "unwind". Environment: UNWIND_QUEUE.
	Queue string `yaml:"queue"`
	// State is the folder of the worker's journals; it must survive restarts. Defaults to $XDG_STATE_HOME/unwind, else
	// ~/.local/state/unwind. Environment: UNWIND_STATE.
	State string `yaml:"state"`
	// Listen is the address of /healthz and /metrics; empty: none. Defaults to none. Environment: UNWIND_LISTEN.
	Listen string `yaml:"listen"`
	// Activities is how many activities run at once. Defaults to 100.
	Activities int `yaml:"activities"`
	// StopTimeout is how long a stopping worker lets running activities finish. Defaults to 30s.
	StopTimeout time.Duration `yaml:"stopTimeout"`
	// Heartbeat is the time without a heartbeat after which an attempt counts as dead. Defaults to 10s.
	Heartbeat time.Duration `yaml:"heartbeat"`
	// HostWait is how long an undo waits on the queue of its host before the task shows that it waits for that host.
	// Defaults to 0: the engine's own 2m.
	HostWait time.Duration `yaml:"hostWait"`
	// Secrets says where the values of secrets are: "env:VARIABLE" or "file:/path". Tasks may refer to them, but for those that the
	// worker uses itself (stripe.key, webhook.secret). All are masked in whatever leaves a call. Defaults to none.
	Secrets map[string]string `yaml:"secrets"`
	// SecretActions limits secrets to actions, by name: "stripe.refund.create", or "stripe.*" for all of a world. Defaults to every action.
	SecretActions map[string][]string `yaml:"secretActions"`
	// Schedules is "on" or "off": whether a starting worker makes sure that the Temporal Schedules exist that recover dead
	// runs and release expired records. If off, somebody else has to start the workflows Sweep and Retain. Defaults to
	// "on". Environment: UNWIND_SCHEDULES.
	Schedules string `yaml:"schedules"`
	// Webhook is notified of undos that need a person. Defaults to none.
	Webhook *WebhookConfig `yaml:"webhook"`
	// Retention bounds what the journals of this host keep.
	Retention RetentionConfig `yaml:"retention"`
	// CheckCommands are the programs that command checks may run; "*" allows any. Defaults to none.
	CheckCommands []string `yaml:"checkCommands"`

	// File enables the world file.
	File *FileConfig `yaml:"file"`
	// Container enables the world container.
	Container *ContainerConfig `yaml:"container"`
	// Terraform enables the world terraform.
	Terraform *TerraformConfig `yaml:"terraform"`
	// Stripe enables the world stripe.
	Stripe *StripeConfig `yaml:"stripe"`
}

// The values of Config.Schedules.
const (
	on  = "on"
	off = "off"
)

// WebhookConfig says where undos that need a person are reported: each POST is a list of workflows.Alert as JSON. It is
// retried until the answer has a status below 300; a status of 400 to 499 is final, except 408 and 429.
type WebhookConfig struct {
	// URL is the address. Required.
	URL string `yaml:"url"`
	// Header is the name of a header that authenticates the sender, such as Authorization. Defaults to none.
	Header string `yaml:"header"`
	// Secret is the name of the secret (in Secrets) that is the header's value. Required with Header.
	Secret string `yaml:"secret"`
}

// RetentionConfig bounds what is kept to roll back committed tasks; what an open task needs is always kept.
type RetentionConfig struct {
	// Versions is how many records of one file are kept. Defaults to 50.
	Versions int `yaml:"versions"`
	// Checkpoints is how many records of one container are kept. Defaults to 1000.
	Checkpoints int `yaml:"checkpoints"`
	// Bytes bounds the size of the records of one world. Defaults to 500 MB. What a task has pinned counts, here and above,
	// but stays for as long as its task says.
	Bytes int64 `yaml:"bytes"`
	// Audit is how long the outcome of a released record is kept. Defaults to 168h.
	Audit time.Duration `yaml:"audit"`
}

// FileConfig limits the world file.
type FileConfig struct {
	// Roots are the folders in which files may be changed. Required.
	Roots []string `yaml:"roots"`
}

// ContainerConfig limits the world container.
type ContainerConfig struct {
	// Engine is the Docker engine's address. Defaults to DOCKER_HOST, else the default socket.
	Engine string `yaml:"engine"`
	// Layers is "auto", "never" or "require": whether checkpoints of running containers are layers over their root, exact
	// and made in milliseconds by a helper container on the engine. Auto falls back to docker commit where layers do not
	// work: on an old kernel, or for a container whose own processes use its files. Require refuses instead, and a worker
	// whose engine has no layers does not start. Defaults to "auto".
	Layers container.LayersMode `yaml:"layers"`
}

// TerraformConfig limits the world terraform.
type TerraformConfig struct {
	// Roots are the folders in which configurations may be applied. Required.
	Roots []string `yaml:"roots"`
	// Binary is the terraform program. Defaults to the one on PATH.
	Binary string `yaml:"binary"`
	// CLIConfig is the file for TF_CLI_CONFIG_FILE. Defaults to an empty one.
	CLIConfig string `yaml:"cliConfig"`
}

// StripeConfig limits the world stripe.
type StripeConfig struct {
	// Key is the name of the secret (in Secrets) that holds the API key. Required.
	Key string `yaml:"key"`
	// URL is another API address, for an emulator. Defaults to Stripe's own.
	URL string `yaml:"url"`
	// AllowLive permits a live key, which is refused otherwise. Defaults to false.
	AllowLive bool `yaml:"allowLive"`
}

// ReadConfig reads a config file. An unknown field is an error.
func ReadConfig(file string) (Config, error) {
	var c Config
	raw, err := os.ReadFile(file)
	if err != nil {
		return c, fmt.Errorf("config: %w", err)
	}
	if err := refuseOldNames(raw); err != nil {
		return c, fmt.Errorf("config %s: %w", file, err)
	}
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return c, fmt.Errorf("config %s: %w", file, err)
	}
	return c, nil
}

// oldNames are removed fields, and what to write instead.
var oldNames = []struct{ world, field, instead string }{
	{"container", "overlay", "layers are the default now; leave it out, or write layers: require, or layers: never to use docker commit only"},
	{"container", "sidecar", "a helper container on the engine makes all layers now; leave it out"},
	{"container", "helper", "the helper container runs the worker's own program now; leave it out"},
}

// refuseOldNames reports removed fields.
func refuseOldNames(raw []byte) error {
	var worlds map[string]any
	_ = yaml.Unmarshal(raw, &worlds) // a decoding error is reported elsewhere
	var problems []error
	for _, old := range oldNames {
		fields, _ := worlds[old.world].(map[string]any)
		if _, given := fields[old.field]; given {
			problems = append(problems, fmt.Errorf("%s.%s was removed: %s", old.world, old.field, old.instead))
		}
	}
	return errors.Join(problems...)
}

// WithEnvironment overrides fields by the variables that are set.
func (c Config) WithEnvironment(lookup func(string) (string, bool)) Config {
	for name, field := range map[string]*string{
		"UNWIND_HOST": &c.Host, "UNWIND_QUEUE": &c.Queue, "UNWIND_STATE": &c.State, "UNWIND_LISTEN": &c.Listen,
		"UNWIND_SCHEDULES": &c.Schedules,
	} {
		if v, set := lookup(name); set {
			*field = v
		}
	}
	return c
}

// WithDefaults fills in what is empty.
func (c Config) WithDefaults() (Config, error) {
	if c.Host == "" {
		name, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("host: the machine has no name; set one: %w", err)
		}
		c.Host = strings.ToLower(name)
	}
	if c.Queue == "" {
		c.Queue = DefaultQueue
	}
	if c.State == "" {
		base := os.Getenv("XDG_STATE_HOME")
		if base == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return c, fmt.Errorf("state: there is no home folder, name a folder: %w", err)
			}
			base = filepath.Join(home, ".local", "state")
		}
		c.State = filepath.Join(base, "unwind")
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
	return c, nil
}

var hostName = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,62})$`)

// Validate reports every invalid field.
func (c Config) Validate() error {
	var problems []error
	bad := func(field, format string, args ...any) {
		problems = append(problems, fmt.Errorf("config: %s: "+format, append([]any{field}, args...)...))
	}
	if !hostName.MatchString(c.Host) {
		bad("host", "%q must be lower-case letters, digits, dots, dashes and underscores, at most 63", c.Host)
	}
	if !filepath.IsAbs(c.State) {
		bad("state", "%q must be an absolute path", c.State)
	}
	if c.Heartbeat < time.Second {
		bad("heartbeat", "%s is too short; give at least 1s", c.Heartbeat)
	}
	if c.HostWait != 0 && c.HostWait < time.Second {
		bad("hostWait", "%s is too short; give at least 1s", c.HostWait)
	}
	if c.Schedules != on && c.Schedules != off {
		bad("schedules", "%q must be %s or %s", c.Schedules, on, off)
	}
	if min(c.Retention.Versions, c.Retention.Checkpoints) < 0 || c.Retention.Bytes < 0 || c.Retention.Audit < 0 {
		bad("retention", "%+v: negative numbers are not allowed", c.Retention)
	}
	if c.Webhook != nil {
		checkWebhook(*c.Webhook, c.Secrets, bad)
	}
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
	if c.File != nil {
		checkRoots("file.roots", c.File.Roots, bad)
	}
	if c.Container != nil && !c.Container.Layers.Valid() {
		bad("container.layers", "%q must be %s, %s or %s", c.Container.Layers, container.LayersAuto, container.LayersNever, container.LayersRequire)
	}
	if c.Terraform != nil {
		checkRoots("terraform.roots", c.Terraform.Roots, bad)
	}
	if c.Stripe != nil {
		if _, known := c.Secrets[c.Stripe.Key]; !known {
			bad("stripe.key", "%q is not one of secrets; name the secret that holds the API key", c.Stripe.Key)
		}
	}
	return errors.Join(problems...)
}

func checkWebhook(w WebhookConfig, secrets map[string]string, bad func(field, format string, args ...any)) {
	// Anything after the host's name may be a secret, so the error omits it.
	if u, err := url.Parse(w.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		bad("webhook.url", "it must be an address that begins with https:// or http://")
	}
	if (w.Header == "") != (w.Secret == "") {
		bad("webhook.header", "%q goes with secret, and secret with it", w.Header)
	}
	if _, known := secrets[w.Secret]; !known && w.Secret != "" {
		bad("webhook.secret", "%q is not one of secrets; name the secret that is the header's value", w.Secret)
	}
}

func checkRoots(field string, roots []string, bad func(field, format string, args ...any)) {
	if len(roots) == 0 {
		bad(field, "name at least one folder")
	}
	for _, r := range roots {
		if info, err := os.Stat(r); !filepath.IsAbs(r) || err != nil || !info.IsDir() {
			bad(field, "%q must be the absolute path of a folder that is there", r)
		}
	}
}
