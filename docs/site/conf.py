"""Settings of Sphinx for the site, which tools/release/site.py builds from the pages of the tree."""
project = "libcoll"
copyright = "the libcoll authors"  # noqa: A001
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
html_theme = "furo"
html_title = "libcoll"
html_show_sphinx = False
html_copy_source = False
# The anchors of headings are those that GitHub makes, which tests/headers/guide.py checks.
myst_heading_anchors = 4
myst_links_external_new_tab = False
# Pages stand in the tables of their index, and begin with the heading that their place in the tree wants.
suppress_warnings = ["toc.not_included", "myst.header", "misc.highlighting_failure"]
