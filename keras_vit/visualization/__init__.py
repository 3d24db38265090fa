"""Figures of training data, metrics, embeddings, attention and relevance maps."""

from keras_vit.visualization.attention_figures import (
    attention_distance_plot,
    attention_sheet,
    faithfulness_plot,
    relevance_sheet,
)
from keras_vit.visualization.attention_maps import (
    attention_maps,
    gradient_rollout,
    mean_attention_distance,
    relevance_maps,
    rollout,
)
from keras_vit.visualization.contact_sheet import contact_sheet
from keras_vit.visualization.drawing import save_figure
from keras_vit.visualization.embeddings import (
    filter_components,
    filter_plot,
    position_similarity,
    position_similarity_plot,
    token_color_sheet,
    token_colors,
)
from keras_vit.visualization.faithfulness import Curves, center_map, faithfulness, random_map
from keras_vit.visualization.overlay import overlay
from keras_vit.visualization.training_curves import training_curves

__all__ = [
    "Curves",
    "attention_distance_plot",
    "attention_maps",
    "attention_sheet",
    "center_map",
    "contact_sheet",
    "faithfulness",
    "faithfulness_plot",
    "filter_components",
    "filter_plot",
    "gradient_rollout",
    "mean_attention_distance",
    "overlay",
    "position_similarity",
    "position_similarity_plot",
    "random_map",
    "relevance_maps",
    "relevance_sheet",
    "rollout",
    "save_figure",
    "token_color_sheet",
    "token_colors",
    "training_curves",
]
