package configuration

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatAConfigurationReads(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	for name, content := range map[string]string{
		"infra/main.tf": `
module "net" {
  source = "../modules/net"
}
module "far" {
  source = "hashicorp/consul/aws"
}
module "own" {
  source = "./own"
}
locals {
  own    = file("${path.module}/inside.json")
  abs    = jsondecode(file("/etc/app/settings.json"))
  beside = templatefile("${path.module}/../shared/${"x"}.tpl", { name = file(var.key) })
  many   = [for f in fileset("${path.root}/../templates", "*.yaml") : yamldecode(file("${path.root}/../templates/${f}"))]
  hash   = filesha256("../archive.zip")
  # file("/not/this")
  plain  = "file(\"/nor/this\")"
}
`,
		"infra/own/main.tf": `resource "x" "y" { content = filebase64("${path.module}/../../blob") }`,
		"infra/broken.tf":   `locals { x = file("/never" `,
		"modules/net/main.tf": `module "inner" { source = "../inner" }` + "\n" +
			`output "o" { value = filemd5("${path.module}/net.json") }`,
		"modules/inner/inner.tf": `module "again" { source = "../net" }`,
	} {
		path := filepath.Join(base, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	reads, err := FindReads(filepath.Join(base, "infra"))
	require.NoError(t, err)
	require.Equal(t, []string{
		"/etc/app/settings.json", filepath.Join(base, "archive.zip"), filepath.Join(base, "blob"),
		filepath.Join(base, "modules/inner"),
		filepath.Join(base, "modules/net"), filepath.Join(base, "modules/net/net.json"), filepath.Join(base, "shared/x.tpl"),
		filepath.Join(base, "templates"),
	}, reads.Paths)
	require.ElementsMatch(t, []string{"file at main.tf:14", "file at main.tf:15"}, reads.Unknown)
}
