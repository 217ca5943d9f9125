package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/seed-62bf7108/unwind/internal/durable"
)

// Terraform takes providers from a folder terraform.d/plugins beside the configuration, unless its
// settings say where providers come from: whoever may write a configuration could bring programs
// that run when it is planned. So the settings always say it, and the folder is not even copied.

// SettingsName is the file with Terraform's settings in the world's folder.
const SettingsName = "terraform.rc"

var (
	comments     = regexp.MustCompile(`(?s)/\*.*?\*/|(?m)(^|\s)(#|//)[^\n]*`)
	installation = regexp.MustCompile(`(?m)(^|[\s{,])"?provider_installation"?\s*[={:]`)
)

// writeSettings writes Terraform's settings: those of the config, with where providers come from.
func (h *Host) writeSettings() error {
	var text []byte
	if h.CLIConfig != "" {
		var err error
		if text, err = os.ReadFile(h.CLIConfig); err != nil {
			return fmt.Errorf("terraform: CLIConfig: %w", err)
		}
	}
	if !installation.Match(comments.ReplaceAll(text, nil)) {
		text = append(text, "\n"+providerInstallation(hostMirrors())...)
	}
	h.settings = filepath.Join(h.Folder, SettingsName)
	return durable.Replace(h.settings, text)
}

// hostMirrors are the folders of this host in which Terraform looks for providers by itself.
func hostMirrors() []string {
	var all []string
	if home, err := os.UserHomeDir(); err == nil {
		all = append(all, filepath.Join(home, ".terraform.d", "plugins"),
			filepath.Join(home, ".local", "share", "terraform", "plugins"))
	}
	for _, dir := range filepath.SplitList(os.Getenv("XDG_DATA_DIRS")) {
		all = append(all, filepath.Join(dir, "terraform", "plugins"))
	}
	return append(all, "/usr/local/share/terraform/plugins", "/usr/share/terraform/plugins")
}

// providerInstallation says in Terraform's language what it does by itself on this host: providers
// that a mirror has come from there, and all others from their registries.
func providerInstallation(mirrors []string) string {
	var b strings.Builder
	var local []string
	b.WriteString("provider_installation {\n")
	for _, mirror := range mirrors {
		providers, err := filepath.Glob(filepath.Join(mirror, "*", "*", "*"))
		if err != nil || len(providers) == 0 {
			continue
		}
		fmt.Fprintf(&b, "  filesystem_mirror {\n    path = %q\n  }\n", mirror)
		for _, provider := range providers {
			if rel, err := filepath.Rel(mirror, provider); err == nil {
				local = append(local, fmt.Sprintf("%q", filepath.ToSlash(rel)))
			}
		}
	}
	fmt.Fprintf(&b, "  direct {\n    exclude = [%s]\n  }\n}\n", strings.Join(local, ", "))
	return b.String()
}
