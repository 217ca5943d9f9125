package host

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/etcd"
	"github.com/seed-62bf7108/unwind/activities/postgres"
	"github.com/seed-62bf7108/unwind/activities/redis"
	"github.com/seed-62bf7108/unwind/activities/terraform"
	"github.com/seed-62bf7108/unwind/worker/defaults"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// Config says what a worker may do, and where. Every field can be set in the file; environment variables override it, and
// flags of the worker command override those.
type Config struct {
	// Host is this worker's name in `on:` and in the name of its own task queue. Defaults to the machine's host name.
	// Environment: UNWIND_HOST.
	Host string `yaml:"host"`
	// Queue is the shared task queue. With QUEUE@HOST, which only that host can serve, it is the host's own as well: an activity then
	// goes to its worker without waiting for a poll. Defaults to "unwind". Environment: UNWIND_QUEUE.
	Queue string `yaml:"queue"`
	// State is the folder of the worker's journals; it must survive restarts. Defaults to $XDG_STATE_HOME/unwind, else
	// ~/.local/state/unwind. Environment: UNWIND_STATE.
	State string `yaml:"state"`
	// writtenState is the state that the config says where the environment says another one.
	writtenState string
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
	// Gates say which changes a person must approve, by action: "high" for those of high risk, "always" for all. A key is the name of an
	// action, "terraform.apply"; "postgres.*" for all of a world that change something; or "*". No task file and no agent goes below it; of
	// several keys that match, the strictest counts. Defaults to none: high, unless a task file says gate: none.
	Gates activities.Floors `yaml:"gates"`
	// Purposes is for how long this host remembers what a step was for that pays or cannot be taken back: a step of another task by the same
	// agent for the same purpose must be approved by a person. Defaults to 24h.
	Purposes time.Duration `yaml:"purposes"`
	// CutDiffs is "ask" or "refuse": what becomes of a planned change whose diff is longer than a gate can show. Ask shows the
	// beginning, and says how much is missing. Defaults to "ask".
	CutDiffs string `yaml:"cutDiffs"`

	// File enables the world file.
	File *FileConfig `yaml:"file"`
	// Container enables the world container.
	Container *ContainerConfig `yaml:"container"`
	// Terraform enables the world terraform.
	Terraform *TerraformConfig `yaml:"terraform"`
	// Stripe enables the world stripe.
	Stripe *StripeConfig `yaml:"stripe"`
	// SQLite enables the world sqlite.
	SQLite *SQLiteConfig `yaml:"sqlite"`
	// Postgres enables the world postgres.
	Postgres *PostgresConfig `yaml:"postgres"`
	// Redis enables the world redis.
	Redis *RedisConfig `yaml:"redis"`
	// Etcd enables the world etcd.
	Etcd *EtcdConfig `yaml:"etcd"`
	// MCP enables the world mcp.
	MCP *MCPConfig `yaml:"mcp"`

	file    string // where it was read from
	written map[string]written
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
	// CLIConfig is the file of Terraform's settings: mirrors, credentials. What its provider_installation says is where providers
	// come from; without one, from the mirrors of this host and from their registries, never from the configuration's folder.
	// Defaults to none.
	CLIConfig string `yaml:"cliConfig"`
	// Environment names variables of the worker's environment that Terraform and what it runs get besides the minimal ones.
	Environment []string `yaml:"environment"`
	// SecretEnvironment are variables that they get, each with the name of the secret (in Secrets) that is its value.
	SecretEnvironment map[string]string `yaml:"secretEnvironment"`
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

// SQLiteConfig limits the world sqlite.
type SQLiteConfig struct {
	// Roots are the folders in which databases may be used. Required.
	Roots []string `yaml:"roots"`
	// Busy is how long a step waits for a database that another program has locked. Defaults to 10s.
	Busy time.Duration `yaml:"busy"`
}

// PostgresConfig limits the world postgres.
type PostgresConfig struct {
	// Databases are those that steps may use, by the name that they use. Required.
	Databases map[string]PostgresDatabase `yaml:"databases"`
}

// PostgresDatabase is a database, and what steps may do to it.
type PostgresDatabase struct {
	// DSN is the name of the secret (in Secrets) that holds the connection string, such as postgres://USER:PASSWORD@HOST/DATABASE. Required.
	DSN string `yaml:"dsn"`
	// Allow are the tables whose rows steps may change, as SCHEMA.TABLE, where * stands for any text. Defaults to all.
	Allow []string `yaml:"allow"`
	// Deny are tables that steps may neither read nor change; it outranks allow. Defaults to none.
	Deny []string `yaml:"deny"`
	// Sensitive are columns whose values people are not shown, as SCHEMA.TABLE.COLUMN. Defaults to none.
	Sensitive []string `yaml:"sensitive"`
}

// RedisConfig limits the world redis.
type RedisConfig struct {
	// Databases are those that steps may use, by the name that they use. Required.
	Databases map[string]RedisDatabase `yaml:"databases"`
}

// RedisDatabase is a logical database of a server, and what steps may do to it.
type RedisDatabase struct {
	// URL is the name of the secret (in Secrets) that holds the address, such as redis://USER:PASSWORD@HOST:6379/0. Required.
	URL string `yaml:"url"`
	// Allow are the keys that steps may change, as patterns where * stands for any text. Defaults to all.
	Allow []string `yaml:"allow"`
	// Deny are keys that steps may neither read nor change; it outranks allow. Defaults to none.
	Deny []string `yaml:"deny"`
	// Sensitive are keys whose content people are not shown. Defaults to none.
	Sensitive []string `yaml:"sensitive"`
}

// EtcdConfig limits the world etcd.
type EtcdConfig struct {
	// Databases are those that steps may use, by the name that they use. Required.
	Databases map[string]EtcdDatabase `yaml:"databases"`
}

// EtcdDatabase is an etcd cluster, or a part of one, and what steps may do to it.
type EtcdDatabase struct {
	// Endpoints are the addresses of the members, such as https://10.0.0.1:2379. Required.
	Endpoints []string `yaml:"endpoints"`
	// User is the worker's user. Defaults to none.
	User string `yaml:"user"`
	// Password is the name of the secret (in Secrets) that holds that of the user. Required with user.
	Password string `yaml:"password"`
	// TLS are the files for https:// endpoints. Defaults to the certificates that the machine trusts.
	TLS EtcdTLS `yaml:"tls"`
	// Namespace is what all keys of the database begin with, and what steps leave out. Defaults to the whole cluster.
	Namespace string `yaml:"namespace"`
	// Allow are the keys that steps may change, as patterns where * stands for any text. Defaults to all.
	Allow []string `yaml:"allow"`
	// Deny are keys that steps may neither read nor change; it outranks allow. Defaults to none.
	Deny []string `yaml:"deny"`
	// Sensitive are keys whose values people are not shown. Defaults to none.
	Sensitive []string `yaml:"sensitive"`
}

// EtcdTLS are files in PEM format.
type EtcdTLS struct {
	// CA has the certificates that sign those of the members. Defaults to those that the machine trusts.
	CA string `yaml:"ca"`
	// Cert and Key are the worker's own certificate and its key. Default to none.
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// MCPConfig limits the world mcp.
type MCPConfig struct {
	// Servers are those whose tools steps may call, by the name that they use. Required.
	Servers map[string]MCPServer `yaml:"servers"`
}

// MCPServer is a server of the Model Context Protocol. The worker starts it, or connects to it, when a step first needs it.
type MCPServer struct {
	// Command is a command line, run by sh -c, that serves over its standard streams. Required, unless URL is given.
	Command string `yaml:"command"`
	// URL is where a server speaks streamable HTTP: https://host/mcp.
	URL string `yaml:"url"`
	// Token is the name of the secret (in Secrets) that each request to URL bears. Defaults to none.
	Token string `yaml:"token"`
	// Declarations is the absolute path of the file that says how its tools are undone (docs/mcp-proxy.md). Defaults to none: every
	// tool is irreversible.
	Declarations string `yaml:"declarations"`
	// Environment names variables of the worker's environment that the server gets besides the minimal ones.
	Environment []string `yaml:"environment"`
	// SecretEnvironment are variables that it gets, each with the name of the secret (in Secrets) that is its value.
	SecretEnvironment map[string]string `yaml:"secretEnvironment"`
}

// OpensNothing reports whether the config opens no world.
func (c Config) OpensNothing() bool {
	return c.File == nil && c.Container == nil && c.Terraform == nil && c.Stripe == nil && c.SQLite == nil && c.Postgres == nil &&
		c.Redis == nil && c.Etcd == nil && c.MCP == nil
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

// queues are the task queues that a worker serves: the shared one first, then its host's own, if that is another.
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
	if c.Webhook != nil {
		checkWebhook(*c.Webhook, c.Secrets, bad)
	}
	c.checkSecrets(bad)
	problems = append(problems, c.checkWorlds(bad))
	return errors.Join(problems...)
}

func (c Config) checkSecrets(bad func(field, format string, args ...any)) {
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

// checkWorlds checks the config of each world. Its error is one that a world itself returns.
func (c Config) checkWorlds(bad func(field, format string, args ...any)) error {
	if c.File != nil {
		checkRoots("file.roots", c.File.Roots, bad)
	}
	if c.Container != nil && !c.Container.Layers.Valid() {
		bad("container.layers", "%q must be %s, %s or %s", c.Container.Layers, container.LayersAuto, container.LayersNever, container.LayersRequire)
	}
	if c.Terraform != nil {
		checkRoots("terraform.roots", c.Terraform.Roots, bad)
		c.checkTerraformEnvironment(bad)
	}
	if c.SQLite != nil {
		checkRoots("sqlite.roots", c.SQLite.Roots, bad)
		if c.SQLite.Busy < 0 {
			bad("sqlite.busy", "%s is negative", c.SQLite.Busy)
		}
	}
	if c.Stripe != nil {
		if _, known := c.Secrets[c.Stripe.Key]; !known {
			bad("stripe.key", "%q is not one of secrets; name the secret that holds the API key", c.Stripe.Key)
		}
	}
	c.checkMCP(bad)
	return errors.Join(c.checkPostgres(bad), c.checkRedis(bad), c.checkEtcd(bad))
}

func (c Config) checkPostgres(bad func(field, format string, args ...any)) error {
	if c.Postgres == nil {
		return nil
	}
	for name, d := range c.Postgres.Databases {
		if _, known := c.Secrets[d.DSN]; !known {
			bad("postgres.databases."+name+".dsn", "it is not the name of one of secrets; name the secret that holds the connection string")
		}
	}
	if err := c.postgres(true).Validate(); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	return nil
}

func (c Config) checkRedis(bad func(field, format string, args ...any)) error {
	if c.Redis == nil {
		return nil
	}
	for name, d := range c.Redis.Databases {
		if _, known := c.Secrets[d.URL]; !known {
			bad("redis.databases."+name+".url", "it is not the name of one of secrets; name the secret that holds the address")
		}
	}
	if err := c.redis(false).Validate(); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	return nil
}

// PostgresDatabases are the databases that the world postgres opens; none where the config does not enable it.
func (c Config) PostgresDatabases() postgres.Config {
	if c.Postgres == nil {
		return postgres.Config{}
	}
	return c.postgres(true)
}

func (c Config) postgres(lookOnly bool) postgres.Config {
	databases := map[string]postgres.Database{}
	for name, d := range c.Postgres.Databases {
		databases[name] = postgres.Database{
			DSN:   func() (string, error) { return secrets(c.Secrets).read(d.DSN) },
			Allow: d.Allow, Deny: d.Deny, Sensitive: d.Sensitive,
		}
	}
	return postgres.Config{Databases: databases, State: filepath.Join(c.State, "postgres"), LookOnly: lookOnly}
}

func (c Config) checkEtcd(bad func(field, format string, args ...any)) error {
	if c.Etcd == nil {
		return nil
	}
	for name, d := range c.Etcd.Databases {
		if _, known := c.Secrets[d.Password]; d.Password != "" && !known {
			bad("etcd.databases."+name+".password", "it is not the name of one of secrets; name the secret that holds the password")
		}
	}
	if err := c.etcd(false).Validate(); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	return nil
}

func (c Config) etcd(lookOnly bool) etcd.Config {
	databases := map[string]etcd.Database{}
	for name, d := range c.Etcd.Databases {
		made := etcd.Database{
			Endpoints: d.Endpoints, User: d.User, TLS: etcd.TLS(d.TLS), Namespace: d.Namespace, Allow: d.Allow, Deny: d.Deny, Sensitive: d.Sensitive,
		}
		if d.Password != "" {
			made.Password = func() (string, error) { return secrets(c.Secrets).read(d.Password) }
		}
		databases[name] = made
	}
	return etcd.Config{Databases: databases, LookOnly: lookOnly}
}

func (c Config) redis(lookOnly bool) redis.Config {
	databases := map[string]redis.Database{}
	for name, d := range c.Redis.Databases {
		databases[name] = redis.Database{
			URL:   func() (string, error) { return secrets(c.Secrets).read(d.URL) },
			Allow: d.Allow, Deny: d.Deny, Sensitive: d.Sensitive,
		}
	}
	return redis.Config{Databases: databases, LookOnly: lookOnly}
}

// checkTerraformEnvironment refuses variables that would hand on the worker's own secrets.
func (c Config) checkTerraformEnvironment(bad func(field, format string, args ...any)) {
	own := map[string]bool{}
	for _, name := range c.ownSecrets() {
		own[name], own[c.Secrets[name]] = true, true
	}
	for _, name := range c.Terraform.Environment {
		if err := terraform.CheckVariable(name); err != nil {
			bad("terraform.environment", "%v", err)
		} else if own["env:"+name] {
			bad("terraform.environment", "%s holds a secret of the worker itself, which no task can have", name)
		}
	}
	for name, secret := range c.Terraform.SecretEnvironment {
		field := "terraform.secretEnvironment." + name
		if err := terraform.CheckVariable(name); err != nil {
			bad(field, "%v", err)
		}
		if _, known := c.Secrets[secret]; !known {
			bad(field, "%q is not one of secrets; name the secret that is its value", secret)
		} else if own[secret] || own[c.Secrets[secret]] {
			bad(field, "%s is a secret of the worker itself, which no task can have", secret)
		}
	}
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
