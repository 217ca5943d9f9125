package devserver_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"

	"github.com/seed-62bf7108/unwind/deploy/devserver"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

func TestSearchAttributesAreThoseOfTheWorkflows(t *testing.T) {
	set := map[string]enums.IndexedValueType{
		protocol.AttributeStatus.GetName():  protocol.AttributeStatus.GetValueType(),
		protocol.AttributeAgent.GetName():   protocol.AttributeAgent.GetValueType(),
		protocol.AttributeGate.GetName():    protocol.AttributeGate.GetValueType(),
		protocol.AttributeFailing.GetName(): protocol.AttributeFailing.GetValueType(),
		protocol.AttributeParked.GetName():  protocol.AttributeParked.GetValueType(),
		protocol.AttributeTask.GetName():    protocol.AttributeTask.GetValueType(),
		protocol.AttributePending.GetName(): protocol.AttributePending.GetValueType(),
	}
	registered := map[string]enums.IndexedValueType{}
	for _, a := range devserver.SearchAttributes {
		registered[a.Name] = a.Type
	}
	require.Equal(t, set, registered)
}

func TestComposeRegistersTheSame(t *testing.T) {
	raw, err := os.ReadFile("../compose/scripts/namespace.sh")
	require.NoError(t, err)
	script := string(raw)
	for _, a := range devserver.SearchAttributes {
		require.Contains(t, script, fmt.Sprintf("--name %s --type %s", a.Name, a.Type))
	}
	require.Equal(t, len(devserver.SearchAttributes), strings.Count(script, "--type"))
}
