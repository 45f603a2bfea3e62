"""Two small plug-ins of a broker, compiled here: brokers refuse policies that name a plug-in which they do not have."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

from pulsar_sandbox.sandbox.jars import jars_for
from pulsar_sandbox.sandbox.java import find_java

ENTRY_FILTER = """
import org.apache.bookkeeper.mledger.Entry;
import org.apache.pulsar.broker.service.plugin.EntryFilter;
import org.apache.pulsar.broker.service.plugin.FilterContext;

public class Everything implements EntryFilter {
    public FilterResult filterEntry(Entry entry, FilterContext context) { return FilterResult.ACCEPT; }
    public void close() { }
}
"""
OFFLOADER = """
import java.util.Map;
import org.apache.bookkeeper.common.util.OrderedScheduler;
import org.apache.bookkeeper.mledger.LedgerOffloaderFactory;
import org.apache.bookkeeper.mledger.LedgerOffloaderStats;
import org.apache.bookkeeper.mledger.impl.NullLedgerOffloader;
import org.apache.pulsar.common.policies.data.OffloadPoliciesImpl;

public class Nowhere implements LedgerOffloaderFactory<NullLedgerOffloader> {
    public boolean isDriverSupported(String driver) { return driver.equals("aws-s3"); }
    public NullLedgerOffloader create(
            OffloadPoliciesImpl policies, Map<String, String> metadata, OrderedScheduler scheduler) {
        return NullLedgerOffloader.INSTANCE;
    }
    public NullLedgerOffloader create(OffloadPoliciesImpl policies, Map<String, String> metadata,
            OrderedScheduler scheduler, LedgerOffloaderStats stats) {
        return NullLedgerOffloader.INSTANCE;
    }
}
"""


def plugin_settings(folder: Path, version: str) -> dict[str, str]:
    """Broker settings for an entry filter named `everything` and a driver `aws-s3` that stores nothing.

    Policies that name a driver name the folder of its plug-in too: `offloaders`.
    """
    filters, offloaders = folder / "filters", folder / "offloaders"
    _build(filters, "Everything", ENTRY_FILTER, version, "entry_filter.yml", "entryFilterClass")
    _build(offloaders, "Nowhere", OFFLOADER, version, "pulsar-offloader.yaml", "offloaderFactoryClass")
    return {
        "entryFiltersDirectory": str(filters),
        "narExtractionDirectory": str(folder),
        "allowOverrideEntryFilters": "true",
    }


def _build(folder: Path, name: str, source: str, version: str, definition: str, key: str) -> None:
    folder.mkdir(parents=True)
    (folder / f"{name}.java").write_text(source)
    compiler = Path(find_java().path).with_name("javac")
    command = [str(compiler), "-proc:none", "-cp", f"{jars_for(version)}/*", str(folder / f"{name}.java")]
    subprocess.run(command, check=True)
    with zipfile.ZipFile(folder / f"{name}.nar", "w") as nar:
        nar.write(folder / f"{name}.class", f"{name}.class")
        nar.writestr(f"META-INF/services/{definition}", f"name: {name.lower()}\ndescription: test\n{key}: {name}\n")
        nar.writestr("META-INF/bundled-dependencies/", "")
        nar.writestr("META-INF/MANIFEST.MF", f"Manifest-Version: 1.0\nNar-Id: {name}\n")
