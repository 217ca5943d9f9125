package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	dockerimage "github.com/docker/docker/api/types/image"
)

// Importer is the part of a Docker client that Import needs.
type Importer interface {
	ImageImport(ctx context.Context, source dockerimage.ImportSource, ref string,
		options dockerimage.ImportOptions) (io.ReadCloser, error)
}

// Import makes an image of a tar stream, with changes as in a Dockerfile, and returns its id.
func Import(ctx context.Context, engine Importer, root io.Reader, ref, message string, changes ...string) (id string,
	err error) {
	answer, err := engine.ImageImport(ctx, dockerimage.ImportSource{Source: root, SourceName: "-"}, ref,
		dockerimage.ImportOptions{
			Message: message, Changes: changes,
		})
	if err != nil {
		return "", fmt.Errorf("importing image %s: %w", ref, err)
	}
	defer answer.Close()
	return importedID(answer, ref)
}

// importedID reads the engine's progress messages; the last status is the new image's id.
func importedID(answer io.Reader, ref string) (id string, err error) {
	for d := json.NewDecoder(answer); ; {
		var message struct{ Status, Error string }
		if err := d.Decode(&message); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return "", fmt.Errorf("importing image %s: %w", ref, err)
		}
		if message.Error != "" {
			return "", fmt.Errorf("importing image %s: %s", ref, message.Error)
		}
		if strings.HasPrefix(message.Status, "sha256:") {
			id = message.Status
		}
	}
	if id == "" {
		return "", fmt.Errorf("importing image %s: the engine named no image id", ref)
	}
	return id, nil
}
