// Package childenv is the environment of the programs that a worker starts for its tasks: what
// programs need to be found and to reach the network, and nothing else of the worker's own, which
// may hold secrets.
package childenv

import (
	"maps"
	"os"
	"slices"
)

// names are the variables that every program gets.
var names = []string{
	"PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE", "TZ",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "AWS_CA_BUNDLE",
	"GIT_SSL_CAINFO",
}

// Minimal is what every program gets, and the variables that are named besides, as far as this
// process has them.
func Minimal(besides ...string) map[string]string {
	env := map[string]string{}
	for _, name := range slices.Concat(names, besides) {
		if value, set := os.LookupEnv(name); set {
			env[name] = value
		}
	}
	return env
}

// List is an environment as os/exec takes it, in the order of its names.
func List(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}
